// Fresh memory in large pages.
#ifndef ASR_ASCEND_CPU_RUNTIME_PAGES_H_
#define ASR_ASCEND_CPU_RUNTIME_PAGES_H_

#include <cstddef>

namespace asr_ascend {

// Asks the system to back memory that is about to be written for the first time with huge pages,
// where it lets programs ask (Linux: transparent_hugepage at "madvise" or "always"). Memory in use
// already stays as it is, and so do small blocks.
void AdviseHugePages(void* memory, std::size_t bytes);

}  // namespace asr_ascend

#endif  // ASR_ASCEND_CPU_RUNTIME_PAGES_H_
