// What the stand-in runtime counted, for tests.
#ifndef ASR_ASCEND_STANDIN_COUNTERS_H_
#define ASR_ASCEND_STANDIN_COUNTERS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint64_t host_to_device_copies;
  uint64_t host_to_device_bytes;
  uint64_t device_to_host_copies;
  uint64_t device_to_host_bytes;
  uint64_t device_to_device_copies;
  uint64_t device_to_device_bytes;
  uint64_t stream_synchronisations;  // those of a copy from or to unpinned memory included
  uint64_t event_synchronisations;
  uint64_t device_synchronisations;
  uint64_t launches;         // operators put on a stream
  uint64_t allocated_bytes;  // of device memory, now
} AsrAscendStandInCounters;

void AsrAscendStandInReadCounters(AsrAscendStandInCounters* counters);
void AsrAscendStandInResetCounters(void);
// Names of the operators launched since the last reset, one a line; writes at most `bytes` and
// returns how many the text takes.
uint64_t AsrAscendStandInLaunches(char* text, uint64_t bytes);

#ifdef __cplusplus
}
#endif

#endif  // ASR_ASCEND_STANDIN_COUNTERS_H_
