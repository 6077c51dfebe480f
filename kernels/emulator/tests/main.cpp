// Runs the cases of the sources that are linked with, or included before, this one.
#include "harness.h"

int main(int argc, char** argv) { return harness::Main(argc, argv); }
