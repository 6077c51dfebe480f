// What exp_test_main.cpp calls of exp_test.cpp.
#ifndef ASR_ASCEND_CPU_TESTS_EXP_TEST_H_
#define ASR_ASCEND_CPU_TESTS_EXP_TEST_H_

// Runs instructions of the set that it was compiled for. Returns the program's exit status.
int RunExpTests();

#endif  // ASR_ASCEND_CPU_TESTS_EXP_TEST_H_
