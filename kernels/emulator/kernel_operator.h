// The AscendC programming interface of one 910B vector core, for a host C++17 compiler.
//
// A kernel source includes this header unchanged. Every call computes what the hardware computes
// and checks what the hardware would get wrong; `emulator::Launch` runs the kernel and reports.
#pragma once

#include "emulator/copy.h"
#include "emulator/launch.h"
#include "emulator/pipe.h"
#include "emulator/sync.h"
#include "emulator/tensor.h"
#include "emulator/tiling.h"
#include "emulator/types.h"
#include "emulator/vector_arithmetic.h"
#include "emulator/vector_cast.h"
#include "emulator/vector_compare.h"
#include "emulator/vector_fill.h"
#include "emulator/vector_reduce.h"
