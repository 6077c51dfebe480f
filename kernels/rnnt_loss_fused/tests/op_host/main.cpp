#include <cstdio>

#include "harness.h"

int main() {
  bool all_passed = true;
  for (const harness::Case& test : harness::Cases()) {
    harness::Failure().clear();
    cann_double::Errors().clear();
    test.run();
    if (harness::Failure().empty()) {
      harness::ExpectErrors({});  // an error that no case expected
    }
    const bool passed = harness::Failure().empty();
    all_passed = all_passed && passed;
    if (passed) {
      std::printf("PASS %s\n", test.name);
    } else {
      std::printf("FAIL %s: %s\n", test.name, harness::Failure().c_str());
    }
  }
  return all_passed ? 0 : 1;
}
