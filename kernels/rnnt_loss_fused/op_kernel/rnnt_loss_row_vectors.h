// Arithmetic on many short rows at once: one instruction takes the same 64 columns of all rows.
#ifndef ASR_ASCEND_RNNT_LOSS_ROW_VECTORS_H_
#define ASR_ASCEND_RNNT_LOSS_ROW_VECTORS_H_

#include "rnnt_loss_vector.h"

namespace rnnt_loss {

// A tile of float rows in UB. One instruction reaches rows that are at most 255 blocks apart, and
// at most 255 of them.
struct TileRows {
  Floats memory;
  int32_t rows;
  int32_t columns;
  int32_t pitch;

  __aicore__ inline Floats At(int32_t row, int32_t column) const {
    return memory[row * pitch + column];
  }
  __aicore__ inline uint8_t Step() const { return static_cast<uint8_t>(pitch / kFloatsPerBlock); }
};

// Whether a tiling's rows are that short, and many enough for it to pay.
__aicore__ inline bool RowsAreShort(int32_t tile_rows, int32_t pitch) {
  return tile_rows >= kFloatsPerBlock && pitch / kFloatsPerBlock <= 255;
}

constexpr int32_t kRowsAtOnce = 248;  // a multiple of 8 below 256

__aicore__ inline int32_t Least(int32_t a, int32_t b) { return a < b ? a : b; }

// Takes each of up to `count` values 8 times, a block for a row.
class Spreader {
 public:
  __aicore__ inline Spreader() {}
  __aicore__ inline void Init(AscendC::TPipe* pipe, int32_t rows) {
    const int32_t count = rows * kFloatsPerBlock;
    pipe->InitBuffer(index_, count * sizeof(uint32_t));
    pipe->InitBuffer(spread_, count * sizeof(float));
    const AscendC::LocalTensor<int32_t> index = index_.Get<int32_t>();
    const Floats steps = spread_.Get<float>();
    // The value's byte offset, 4 * (i / 8).
    AscendC::CreateVecIndex(steps, 0.0f, static_cast<uint32_t>(count));
    Barrier();
    AscendC::Muls(steps, steps, 1.0f / kFloatsPerBlock, count);
    Barrier();
    AscendC::Cast(index, steps, AscendC::RoundMode::CAST_FLOOR, static_cast<uint32_t>(count));
    Barrier();
    AscendC::Muls(index, index, static_cast<int32_t>(sizeof(float)), count);
    Barrier();
  }
  __aicore__ inline Floats Spread(const Floats& values, int32_t begin, int32_t rows) {
    const Floats spread = spread_.Get<float>();
    AscendC::Gather(spread, values, index_.Get<uint32_t>(),
                    static_cast<uint32_t>(begin * sizeof(float)),
                    static_cast<uint32_t>(rows * kFloatsPerBlock));
    Barrier();
    return spread;
  }

 private:
  Buffer index_;
  Buffer spread_;
};

// to[row] = from[row] + value[row], or minus it; both tiles have one shape and may be the same.
template <bool subtract>
__aicore__ inline void AddToRows(const Floats& to, const TileRows& from, const Floats& spread) {
  const AscendC::BinaryRepeatParams steps(1, 1, 0, from.Step(), from.Step(), 1);
  for (int32_t row = 0; row < from.rows; row += kRowsAtOnce) {
    const auto repeats = static_cast<uint32_t>(Least(from.rows - row, kRowsAtOnce));
    const Floats value = spread[row * kFloatsPerBlock];
    for (int32_t column = 0; column < from.columns; column += kFloatsPerRepeat) {
      const auto mask = static_cast<uint64_t>(Least(from.columns - column, kFloatsPerRepeat));
      const Floats target = to[row * from.pitch + column];
      if constexpr (subtract) {
        AscendC::Sub(target, from.At(row, column), value, mask, repeats, steps);
      } else {
        AscendC::Add(target, from.At(row, column), value, mask, repeats, steps);
      }
    }
  }
  Barrier();
}

// to[row][column] = value[row].
__aicore__ inline void SetColumn(const TileRows& to, int32_t column, const Floats& spread) {
  uint64_t bits[2] = {uint64_t{1} << (column % kFloatsPerRepeat), 0};
  const int32_t block = column / kFloatsPerRepeat * kFloatsPerRepeat;
  const AscendC::UnaryRepeatParams steps(1, 0, to.Step(), 1);
  for (int32_t row = 0; row < to.rows; row += kRowsAtOnce) {
    const auto repeats = static_cast<uint32_t>(Least(to.rows - row, kRowsAtOnce));
    AscendC::Adds(to.At(row, block), spread[row * kFloatsPerBlock], 0.0f, bits, repeats, steps);
  }
  Barrier();
}

// The greatest element, or the sum, of each row. `partial` has room for 64 floats a row.
enum class Reduction { kMax, kSum };

template <Reduction reduction>
__aicore__ inline void FoldColumns(const TileRows& tile, int32_t row, int32_t repeats,
                                   const Floats& partial) {
  const auto count = static_cast<uint32_t>(repeats);
  AscendC::Adds(partial, tile.At(row, 0), 0.0f, kFloatsPerRepeat, count,
                AscendC::UnaryRepeatParams(1, 1, 8, tile.Step()));
  Barrier();
  const AscendC::BinaryRepeatParams steps(1, 1, 1, 8, 8, tile.Step());
  for (int32_t column = kFloatsPerRepeat; column < tile.columns; column += kFloatsPerRepeat) {
    const auto mask = static_cast<uint64_t>(Least(tile.columns - column, kFloatsPerRepeat));
    if constexpr (reduction == Reduction::kMax) {
      AscendC::Max(partial, partial, tile.At(row, column), mask, count, steps);
    } else {
      AscendC::Add(partial, partial, tile.At(row, column), mask, count, steps);
    }
    Barrier();
  }
}

template <Reduction reduction>
__aicore__ inline void ReduceRows(const Floats& result, const TileRows& tile,
                                  const Floats& partial) {
  for (int32_t row = 0; row < tile.rows; row += kRowsAtOnce) {
    const int32_t repeats = Least(tile.rows - row, kRowsAtOnce);
    Floats source = tile.At(row, 0);
    int32_t mask = tile.columns;
    int32_t step = tile.Step();
    if (tile.columns > kFloatsPerRepeat) {
      FoldColumns<reduction>(tile, row, repeats, partial);
      source = partial;
      mask = kFloatsPerRepeat;
      step = kFloatsPerRepeat / kFloatsPerBlock;
    }
    if constexpr (reduction == Reduction::kMax) {
      AscendC::WholeReduceMax(result[row], source, mask, repeats, 1, 1, step,
                              AscendC::ReduceOrder::ORDER_ONLY_VALUE);
    } else {
      AscendC::WholeReduceSum(result[row], source, mask, repeats, 1, 1, step);
    }
    Barrier();
  }
}

}  // namespace rnnt_loss

#endif  // ASR_ASCEND_RNNT_LOSS_ROW_VECTORS_H_
