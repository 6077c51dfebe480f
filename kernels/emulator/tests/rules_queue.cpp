// Rules of queues: each kernel breaks one, and its twin doesn't.
#include "harness.h"

namespace rules_queue {

using namespace harness;

namespace {

constexpr uint32_t kCount = 64;

// One queue of each kind and a buffer, all of kCount floats.
struct Queues {
  Queues() {
    pipe.InitBuffer(in, 1, kCount * sizeof(float));
    pipe.InitBuffer(out, 1, kCount * sizeof(float));
    pipe.InitBuffer(buffer, kCount * sizeof(float));
  }
  LocalTensor<float> Free() { return buffer.Get<float>(); }

  TPipe pipe;
  TQue<TPosition::VECIN, 1> in;
  TQue<TPosition::VECOUT, 1> out;
  CopyBuffer buffer;
};

}  // namespace

// Queues order MTE2, V and MTE3, never V after V and never the scalar unit.
RULE(QueueOrdersNoScalar,
     "LocalTensor::GetValue: `this` is read on S, but an earlier write on MTE2 is not known to be "
     "complete: SetFlag/WaitFlag<HardEvent::MTE2_S> is missing.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Queues q;
    LocalTensor<float> tensor = q.in.AllocTensor<float>();
    DataCopy(tensor, Gm<float>(x), kCount);
    q.in.EnQue(tensor);
    tensor = q.in.DeQue<float>();
    if (!broken) Sync<HardEvent::MTE2_S>();
    tensor.GetValue(0);
    q.in.FreeTensor(tensor);
  });
}

RULE(QueueMissingEnQue,
     "Exp: `src` is read on V, but an earlier write on MTE2 is not known to be complete: "
     "SetFlag/WaitFlag<HardEvent::MTE2_V> is missing.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Queues q;
    LocalTensor<float> tensor = q.in.AllocTensor<float>();
    DataCopy(tensor, Gm<float>(x), kCount);
    if (!broken) {
      q.in.EnQue(tensor);
      tensor = q.in.DeQue<float>();
    }
    Exp(q.Free(), tensor, kCount);
    q.in.FreeTensor(tensor);
  });
}

RULE(UseAfterFree, "Exp: `src` is used after FreeTensor.") {
  return RunXy([=](GM_ADDR x, GM_ADDR) {
    Queues q;
    LocalTensor<float> tensor = q.in.AllocTensor<float>();
    DataCopy(tensor, Gm<float>(x), kCount);
    q.in.EnQue(tensor);
    tensor = q.in.DeQue<float>();
    if (broken) q.in.FreeTensor(tensor);
    Exp(q.Free(), tensor, kCount);
    if (!broken) q.in.FreeTensor(tensor);
  });
}

RULE(FreeTwice, "TQue::FreeTensor: `tensor` is used after FreeTensor.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Queues q;
    LocalTensor<float> tensor = q.in.AllocTensor<float>();
    q.in.FreeTensor(tensor);
    if (broken) q.in.FreeTensor(tensor);
  });
}

RULE(ForeignTensor, "TQue::EnQue: `tensor` doesn't come from this queue.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Queues q;
    LocalTensor<float> tensor = q.out.AllocTensor<float>();
    if (broken) {
      q.in.EnQue(tensor);
    } else {
      q.out.EnQue(tensor);
    }
    tensor = q.out.DeQue<float>();
    q.out.FreeTensor(tensor);
  });
}

RULE(QueueDepth, "TQue::EnQue: the queue's depth is 1, and as many tensors are enqueued.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, 2, 32);
    queue.EnQue(queue.AllocTensor<float>());
    if (broken) queue.EnQue(queue.AllocTensor<float>());
    LocalTensor<float> tensor = queue.DeQue<float>();
    queue.FreeTensor(tensor);
  });
}

RULE(DeQueEmpty, "TQue::DeQue: the queue is empty, so this waits for ever.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Queues q;
    if (!broken) q.in.EnQue(q.in.AllocTensor<float>());
    LocalTensor<float> tensor = q.in.DeQue<float>();
    q.in.FreeTensor(tensor);
  });
}

RULE(AllocNoneIdle, "TQue::AllocTensor: no buffer of the queue is idle, so this waits for ever.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Queues q;
    LocalTensor<float> tensor = q.in.AllocTensor<float>();
    if (!broken) q.in.FreeTensor(tensor);
    tensor = q.in.AllocTensor<float>();
    q.in.FreeTensor(tensor);
  });
}

RULE(EmptyQueue, "TPipe::InitBuffer: `num` must be above zero.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, broken ? 0 : 1, 32);
  });
}

RULE(QueueInitTwice, "TPipe::InitBuffer: `que` already has its buffers.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Queues q;
    TQue<TPosition::VECIN, 1> other;
    if (broken) {
      q.pipe.InitBuffer(q.in, 1, 32);
    } else {
      q.pipe.InitBuffer(other, 1, 32);
    }
  });
}

RULE(EnQueTwice, "TQue::EnQue: `tensor` is already enqueued.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Queues q;
    LocalTensor<float> tensor = q.in.AllocTensor<float>();
    q.in.EnQue(tensor);
    if (broken) q.in.EnQue(tensor);
    tensor = q.in.DeQue<float>();
    q.in.FreeTensor(tensor);
  });
}

RULE(FreeEnqueued, "TQue::FreeTensor: `tensor` is still enqueued.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Queues q;
    LocalTensor<float> tensor = q.in.AllocTensor<float>();
    q.in.EnQue(tensor);
    if (!broken) tensor = q.in.DeQue<float>();
    q.in.FreeTensor(tensor);
  });
}

// A freed buffer holds an event id until it is allocated again.
RULE(TooManyFreed, "TQue::FreeTensor: all 8 ids of event V_MTE2 are in use.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    TPipe pipe;
    TQue<TPosition::VECIN, 1> queue;
    pipe.InitBuffer(queue, 9, 32);
    for (int i = 0; i < (broken ? 9 : 8); ++i) {
      LocalTensor<float> tensor = queue.AllocTensor<float>();
      queue.FreeTensor(tensor);
    }
  });
}

RULE(QueueEventTaken,
     "SetFlag: event MTE2_V 0 is already set and was not waited for (a queue uses it: take ids "
     "from AllocEventID).") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Queues q;
    q.in.EnQue(q.in.AllocTensor<float>());
    const int id = broken ? 0 : q.pipe.AllocEventID<HardEvent::MTE2_V>();
    SetFlag<HardEvent::MTE2_V>(id);
    WaitFlag<HardEvent::MTE2_V>(id);
    if (!broken) q.pipe.ReleaseEventID<HardEvent::MTE2_V>(static_cast<TEventID>(id));
    LocalTensor<float> tensor = q.in.DeQue<float>();
    q.in.FreeTensor(tensor);
  });
}

RULE(WaitForQueueEvent, "WaitFlag: event MTE2_V 0 belongs to a queue.") {
  return RunXy([=](GM_ADDR, GM_ADDR) {
    Queues q;
    q.in.EnQue(q.in.AllocTensor<float>());
    if (broken) WaitFlag<HardEvent::MTE2_V>(0);
    LocalTensor<float> tensor = q.in.DeQue<float>();
    q.in.FreeTensor(tensor);
  });
}

}  // namespace rules_queue
