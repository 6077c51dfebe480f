// Rules of UB and GM memory: each kernel breaks one, and its twin doesn't.
#include "harness.h"

namespace rules_memory {

using namespace harness;

RULE(UbOverflow,
     "TPipe::InitBuffer: UB holds 196352 bytes, but the buffers so far and this one need 196384.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TBuf<> a, b;
    pipe.InitBuffer(a, 196352 - 32);
    pipe.InitBuffer(b, broken ? 33 : 32);
  });
}

RULE(TooManyBuffers, "TPipe::InitBuffer: at most 64 buffers fit one kernel.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    TBuf<> last;
    pipe.InitBuffer(queue, broken ? 64 : 63, 32);
    pipe.InitBuffer(last, 32);
  });
}

RULE(EmptyBuffer, "TPipe::InitBuffer: `len` must be above zero.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, broken ? 0 : 1);
  });
}

RULE(TooManyAllocated, "TQue::AllocTensor: at most 8 tensors of one position may be allocated.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, 9, 32);
    std::vector<LocalTensor<float>> tensors;
    for (int i = 0; i < (broken ? 9 : 8); ++i) tensors.push_back(queue.AllocTensor<float>());
    for (auto& tensor : tensors) queue.FreeTensor(tensor);
  });
}

RULE(SecondPipe, "TPipe: a kernel may have one TPipe at a time.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    {
      TPipe first;
    }
    TPipe second;
    if (broken) TPipe third;
  });
}

RULE(VectorAlignment, "Adds: `dst` must start at a multiple of 32 bytes in UB, but is at 132.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 2> ub(32);
    Duplicate(ub[0], 1.0f, 32);
    PipeBarrier<PIPE_V>();
    Adds(ub[1][broken ? 1 : 8], ub[0], 1.0f, 8);
  });
}

RULE(CopyAlignment, "DataCopyPad: `dst` must start at a multiple of 32 bytes in UB, but is at 4.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 1> ub(64);
    DataCopyPad(ub[0][broken ? 1 : 8], Gm<float>(x), DataCopyExtParams{1, 20, 0, 0, 0},
                DataCopyPadExtParams<float>{});
  });
}

RULE(BeyondTensor, "Exp: `src` has 128 bytes, but 132 are accessed.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 2> ub(32);
    Duplicate(ub[0], 1.0f, 32);
    PipeBarrier<PIPE_V>();
    Exp(ub[1], ub[0], broken ? 33 : 32);
  });
}

RULE(BeyondSubTensor, "Exp: `src` has 64 bytes, but 96 are accessed.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 2> ub(32);
    Duplicate(ub[0], 1.0f, 32);
    PipeBarrier<PIPE_V>();
    Exp(ub[1], ub[0][16], broken ? 24 : 16);
  });
}

RULE(CopyBeyondTensor, "DataCopyPad: `dst` has 128 bytes, but 160 are accessed.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 1> ub(32);
    // Two blocks of 12 bytes take 32 each, and the gap between them counts 32-byte blocks.
    const uint16_t gap = broken ? 3 : 2;
    DataCopyPad(ub[0], Gm<float>(x), DataCopyExtParams{2, 12, 0, gap, 0},
                DataCopyPadExtParams<float>{});
  });
}

RULE(SubTensorOffset, "LocalTensor::operator[]: `offset` must be at most 32, but is 33.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 1> ub(32);
    ub[0][broken ? 33 : 32];
  });
}

RULE(LocalIndex, "LocalTensor::SetValue: `index` must be below 32, but is 32.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 1> ub(32);
    ub[0].SetValue(broken ? 32 : 31, 1.0f);
  });
}

RULE(BufferSlice, "TBuf::Get: the buffer has 128 bytes, but 132 are asked for.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TBuf<> buffer;
    pipe.InitBuffer(buffer, 128);
    buffer.Get<float>(broken ? 33 : 32);
  });
}

RULE(NeverAllocated, "Exp: `src` is a tensor that was never allocated.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 2> ub(32);
    Duplicate(ub[0], 1.0f, 32);
    PipeBarrier<PIPE_V>();
    LocalTensor<float> tensor;
    if (!broken) tensor = ub[0];
    Exp(ub[1], tensor, 32);
  });
}

RULE(UninitialisedVector, "Exp: `src` reads UB bytes that were never written.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 2> ub(32);
    Duplicate(ub[0], 1.0f, broken ? 31 : 32);
    PipeBarrier<PIPE_V>();
    Exp(ub[1], ub[0], 32);
  });
}

RULE(UninitialisedScalar, "LocalTensor::GetValue: `this` reads UB bytes that were never written.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Scratch<float, 1> ub(32);
    ub[0].SetValue(3, 1.0f);
    ub[0].GetValue(broken ? 4 : 3);
  });
}

RULE(UninitialisedCopy, "DataCopy: `src` reads UB bytes that were never written.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(32);
    Duplicate(ub[0], 1.0f, broken ? 24 : 32);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y), ub[0], 32);
  });
}

// What an earlier use of the same buffer left there doesn't count as written.
RULE(UninitialisedReuse, "Exp: `src` reads UB bytes that were never written.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    TBuf<> out;
    pipe.InitBuffer(queue, 1, 128);
    pipe.InitBuffer(out, 128);
    for (int turn = 0; turn < 2; ++turn) {
      LocalTensor<float> tensor = queue.AllocTensor<float>();
      DataCopy(tensor, Gm<float>(x), turn == 1 && broken ? 24 : 32);
      queue.EnQue(tensor);
      tensor = queue.DeQue<float>();
      Exp(out.Get<float>(), tensor, 32);
      PipeBarrier<PIPE_V>();
      queue.FreeTensor(tensor);
    }
  });
}

RULE(UnknownPadding, "Exp: `src` reads UB bytes that were never written.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 2> ub(8);
    DataCopyPad(ub[0], Gm<float>(x), DataCopyExtParams{1, 20, 0, 0, 0},
                DataCopyPadExtParams<float>{!broken, 0, 3, 0.0f});
    Sync<HardEvent::MTE2_V>();
    Exp(ub[1], ub[0], 8);
  });
}

// Without isPad, what completes the last 32 bytes is no data, whatever the chip puts there.
RULE(UnknownCompletion, "Exp: `src` reads UB bytes that were never written.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 2> ub(8);
    DataCopyPad(ub[0], Gm<float>(x), DataCopyExtParams{1, 20, 0, 0, 0},
                DataCopyPadExtParams<float>{!broken, 0, 0, 0.0f});
    Sync<HardEvent::MTE2_V>();
    Exp(ub[1], ub[0], 8);
  });
}

RULE(GmReadPastEnd, "DataCopyPad: `src` covers bytes [4032, 4100) of GM `x`, which has 4096.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 1> ub(32);
    DataCopyPad(ub[0], Gm<float>(x)[1008], DataCopyExtParams{1, broken ? 68u : 64u, 0, 0, 0},
                DataCopyPadExtParams<float>{});
  });
}

RULE(GmReadBeforeStart, "DataCopy: `src` covers bytes [-4, 28) of GM `x`, which has 4096.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 1> ub(32);
    GlobalTensor<float> gm = Gm<float>(x);
    DataCopy(ub[0], gm[broken ? static_cast<uint64_t>(-1) : 0], 8);
  });
}

RULE(GmWritePastEnd, "DataCopy: `dst` covers bytes [4064, 4128) of GM `y`, which has 4096.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 1> ub(32);
    Duplicate(ub[0], 1.0f, 32);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y)[1016], ub[0], broken ? 16 : 8);
  });
}

RULE(GlobalTensorSize,
     "DataCopy: `src` is a GlobalTensor of 64 bytes over GM `x`, but bytes [0, 96) are accessed.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Scratch<float, 1> ub(32);
    GlobalTensor<float> gm;
    gm.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x), 16);
    DataCopy(ub[0], gm, broken ? 24 : 16);
  });
}

RULE(GmScalarPastEnd,
     "GlobalTensor::GetValue: `this` covers bytes [4096, 4100) of GM `x`, which has 4096.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) { Gm<float>(x).GetValue(broken ? 1024 : 1023); });
}

RULE(GmUnknown, "DataCopy: `src` points into no GM tensor of this launch.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    static float host[8];
    Scratch<float, 1> ub(32);
    DataCopy(ub[0], Gm<float>(broken ? reinterpret_cast<GM_ADDR>(host) : x), 8);
  });
}

RULE(GmElementAlignment,
     "GlobalTensor::SetGlobalBuffer: `buffer` must be aligned to its element's 4 bytes.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) { Gm<float>(x + (broken ? 2 : 4)); });
}

RULE(GmNeverWritten,
     "DataCopy: `src` (GM `y`) is read, but neither the host nor the kernel has written it.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    Scratch<float, 2> ub(32);
    Duplicate(ub[0], 1.0f, 32);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(y), ub[0], 32);
    Sync<HardEvent::MTE3_MTE2>();
    DataCopy(ub[1], Gm<float>(y)[broken ? 8 : 0], 32);
  });
}

RULE(GmReadOnly, "DataCopy: `dst` writes GM `x`, which is an input.") {
  return RunXy([=](GM_ADDR x, GM_ADDR y) {
    Scratch<float, 1> ub(32);
    Duplicate(ub[0], 1.0f, 32);
    Sync<HardEvent::V_MTE3>();
    DataCopy(Gm<float>(broken ? x : y), ub[0], 32);
  });
}

// The address sanitizer would stop at the write itself, so this writes where it can't see.
RULE(GmGuard, "kernel: a raw pointer wrote outside GM `y`.") {
  return RunXy([=](GM_ADDR, GM_ADDR y) {
    if (!broken) return;
    EMULATOR_UNPOISON(y + 4096, 4);
    y[4096] = 0;
  });
}

RULE(TensorNotFreed, "end of kernel: a tensor was allocated and never freed.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, 1, 32);
    LocalTensor<float> tensor = queue.AllocTensor<float>();
    if (!broken) queue.FreeTensor(tensor);
  });
}

RULE(TensorNotDequeued, "end of kernel: a tensor was enqueued and never dequeued.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, 1, 32);
    queue.EnQue(queue.AllocTensor<float>());
    if (broken) return;
    LocalTensor<float> tensor = queue.DeQue<float>();
    queue.FreeTensor(tensor);
  });
}

}  // namespace rules_memory
