// Tiling through CANN's door: exact numbers, workspace, key, and every refusal word for word.
#include <cstring>
#include <functional>
#include <limits>

#include "harness.h"
#include "op_host/rnnt_loss_fused_tiling_plan.h"
#include "register/op_impl_registry.h"

namespace {

using harness::ExpectEqual;
using harness::ExpectErrors;
using rnnt_loss_fused::Shape;

constexpr size_t kSystemWorkspaceBytes = 16 * 1024 * 1024;

struct Tensor {
  Shape shape;
  ge::DataType type;
};

// A launch as a framework would describe it: the test changes one thing of a good one.
struct Launch {
  const char* op_type;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  std::vector<gert::RuntimeAttrs::Value> attrs;
  fe::PlatFormInfos platform;
  bool has_platform = true;
  size_t tiling_capacity = 4096;
};

Launch Fused(ge::DataType type = ge::DT_FLOAT) {
  return {"RnntLossFused",
          {{{24, 5}, type}, {{2, 3}, ge::DT_INT32}, {{2}, ge::DT_INT32}, {{2}, ge::DT_INT32}},
          {{{2}, ge::DT_FLOAT}, {{24, 5}, type}, {{2}, ge::DT_INT32}},
          {int64_t{-1}, -1.0f, true, false},
          {}};
}

Launch Forward(ge::DataType type = ge::DT_FLOAT) {
  Launch launch = Fused(type);
  launch.op_type = "RnntLossForward";
  launch.outputs[1] = {rnnt_loss_fused::StateShape(24, 2), ge::DT_FLOAT};
  launch.attrs = {int64_t{-1}, true, true, false};
  return launch;
}

Launch Backward(ge::DataType type = ge::DT_FLOAT) {
  Launch launch = Fused(type);
  launch.op_type = "RnntLossBackward";
  launch.inputs.push_back({rnnt_loss_fused::StateShape(24, 2), ge::DT_FLOAT});
  launch.inputs.push_back({{2}, ge::DT_FLOAT});
  launch.outputs = {{{24, 5}, type}};
  launch.attrs = {int64_t{-1}, -1.0f, true, 0.0f, false};
  return launch;
}

gert::StorageShape ToStorage(const Shape& shape) {
  gert::Shape sizes;
  for (const int64_t size : shape) sizes.AppendDim(size);
  return {sizes, sizes};
}

struct Outcome {
  ge::graphStatus status = ge::GRAPH_FAILED;
  RnntLossFusedTilingData data = {};
  std::vector<size_t> workspace_sizes;
  uint64_t tiling_key = 0;
  uint32_t block_dim = 0;
  uint32_t schedule_mode = 0;
};

Outcome Tile(Launch launch) {
  gert::TilingContext context;
  context.fields.node_name = "loss";
  for (const Tensor& tensor : launch.inputs) {
    context.fields.inputs.push_back(ToStorage(tensor.shape));
    context.fields.input_types.emplace_back(tensor.type);
  }
  for (const Tensor& tensor : launch.outputs) {
    context.fields.outputs.push_back(ToStorage(tensor.shape));
    context.fields.output_types.emplace_back(tensor.type);
  }
  context.fields.attrs = gert::RuntimeAttrs{launch.attrs};
  context.platform = launch.has_platform ? &launch.platform : nullptr;
  context.tiling_data = gert::TilingData(launch.tiling_capacity);
  Outcome outcome;
  outcome.status = gert::OpImplRegisterV2::All().at(launch.op_type).tiling(&context);
  if (outcome.status == ge::GRAPH_SUCCESS) {
    ExpectEqual(context.tiling_data.GetDataSize(), sizeof(outcome.data), "tiling data size");
    std::memcpy(&outcome.data, context.tiling_data.GetData(), sizeof(outcome.data));
  }
  outcome.workspace_sizes = context.workspace_sizes;
  outcome.tiling_key = context.tiling_key;
  outcome.block_dim = context.block_dim;
  outcome.schedule_mode = context.schedule_mode;
  return outcome;
}

Outcome TileWell(const Launch& launch) {
  const Outcome outcome = Tile(launch);
  ExpectEqual(outcome.status, ge::GRAPH_SUCCESS, "status");
  ExpectErrors({});
  return outcome;
}

void ExpectRefusal(const Launch& launch, const std::string& message) {
  ExpectEqual(Tile(launch).status, ge::GRAPH_FAILED, "status");
  ExpectErrors({"loss: " + message});
}

CASE(TilingData) {
  const RnntLossFusedTilingData data = TileWell(Fused()).data;
  ExpectEqual(data.num_rows, 24, "num_rows");
  ExpectEqual(data.vocab, 5, "vocab");
  ExpectEqual(data.batch, 2, "batch");
  ExpectEqual(data.target_columns, 3, "target_columns");
  ExpectEqual(data.blank, 4, "blank");
  ExpectEqual(data.clamp, -1.0f, "clamp");
  ExpectEqual(data.fused_log_softmax, 1, "fused_log_softmax");
  ExpectEqual(data.used_cores, 40, "used_cores");
  ExpectEqual(data.has_status, 1, "has_status");
  ExpectEqual(data.needs_grad, 1, "needs_grad");
  ExpectEqual(data.fastemit_lambda, 0.0f, "fastemit_lambda");
  ExpectEqual(data.blank_in_targets, 0, "blank_in_targets");
}

CASE(BlankInTargets) {
  for (const Launch& plain : {Fused(), Forward(), Backward()}) {
    Launch launch = plain;
    launch.attrs.back() = true;
    ExpectEqual(TileWell(launch).data.blank_in_targets, 1, "blank_in_targets");
    launch.attrs.pop_back();
    ExpectRefusal(launch, "`blank_in_targets` is missing.");
  }
}

CASE(StateLayout) {
  const RnntLossFusedTilingData data = TileWell(Fused()).data;
  ExpectEqual(data.state_plane_bytes, 128, "state_plane_bytes");  // 24 float32, whole cache lines
  ExpectEqual(data.state_samples_offset, 9 * 128, "state_samples_offset");
  ExpectEqual(data.state_flags_offset, 1216, "state_flags_offset");  // + 2 samples of 32 bytes
  ExpectEqual(data.state_bytes, 3328, "state_bytes");  // + 65 flags of 32 bytes, whole cache lines
}

// Operators with a band of 7 frames, with windows or without.
std::vector<Launch> Banded(bool has_windows) {
  std::vector<Launch> launches = {Fused(), Forward(), Backward()};
  const Shape state = rnnt_loss_fused::StateShape(24, 2, true, 7);
  launches[1].outputs[1].shape = state;
  launches[2].inputs[4].shape = state;
  for (Launch& launch : launches) {
    launch.inputs.push_back({{2, 7, 2}, ge::DT_INT32});
    if (has_windows) launch.inputs.push_back({{2, 3, 2}, ge::DT_INT32});
  }
  return launches;
}

CASE(Band) {
  for (const bool has_windows : {false, true}) {
    for (const Launch& launch : Banded(has_windows)) {
      const Outcome outcome = TileWell(launch);
      ExpectEqual(outcome.data.band_frames, 7, "band_frames");
      ExpectEqual(outcome.data.has_windows, has_windows ? 1 : 0, "has_windows");
      ExpectEqual(outcome.data.state_band_offset, 3328, "state_band_offset");
      ExpectEqual(outcome.data.state_bytes, 3328 + 192, "state_bytes");
      const size_t own = launch.op_type == std::string("RnntLossFused") ? 3520 : 0;
      ExpectEqual(outcome.workspace_sizes, std::vector<size_t>{kSystemWorkspaceBytes + own},
                  "workspace");
    }
  }
  for (const Launch& launch : {Fused(), Forward(), Backward()}) {
    ExpectEqual(TileWell(launch).data.band_frames, 0, "band_frames without a band");
    ExpectEqual(TileWell(launch).data.has_windows, 0, "has_windows without windows");
  }
}

CASE(BandIsRefused) {
  for (const Launch& plain : Banded(true)) {
    Launch launch = plain;
    const size_t place = launch.inputs.size() - 2;
    launch.inputs[place].type = ge::DT_INT64;
    ExpectRefusal(launch, "`band` must be int32, but is another type.");
    launch = plain;
    launch.inputs[place + 1].type = ge::DT_FLOAT;
    ExpectRefusal(launch, "`emission_windows` must be int32, but is float32.");
    launch = plain;
    launch.inputs[place].shape = {2, 7};
    ExpectRefusal(launch, "`band` must have shape (B, T, 2), but has (2, 7).");
    launch.inputs[place].shape = {2, -1, 2};
    ExpectRefusal(launch, "Every size of `band` must be known when the kernel is launched.");
  }
  Launch launch = Forward();
  launch.inputs.push_back({{2, 7, 2}, ge::DT_INT32});
  ExpectRefusal(launch, "`state` must have shape (state size,) = (880,), but has (832,).");
}

CASE(BandLetsTargetsBeLong) {
  Launch launch = Banded(false)[0];
  launch.inputs[1].shape = {2, 5000};
  ExpectEqual(TileWell(launch).data.lattice_lanes, 64, "lanes of a band of 7 frames");
  launch.inputs[0].shape[0] = 60000;
  launch.outputs[1].shape[0] = 60000;
  launch.inputs[4].shape = {2, 5000, 2};
  ExpectEqual(TileWell(launch).data.lattice_lanes, 1024, "lanes of a band of 5000 frames");
  launch.inputs[1].shape = {2, (int64_t{1} << 30) + 1};
  ExpectRefusal(
      launch, "The number of columns of `targets` must be at most 1073741824, but is 1073741825.");
}

CASE(FastemitLambda) {
  Launch launch = Backward();
  launch.attrs[3] = 0.25f;
  ExpectEqual(TileWell(launch).data.fastemit_lambda, 0.25f, "fastemit_lambda");
  launch.attrs[3] = -0.5f;
  ExpectRefusal(launch, "`fastemit_lambda` must be finite and at least 0, but is -0.5.");
  launch.attrs[3] = std::numeric_limits<float>::infinity();
  ExpectRefusal(launch, "`fastemit_lambda` must be finite and at least 0, but is inf.");
  launch.attrs[3] = std::numeric_limits<float>::quiet_NaN();
  ExpectRefusal(launch, "`fastemit_lambda` must be finite and at least 0, but is nan.");
  launch.attrs.resize(3);
  ExpectRefusal(launch, "`fastemit_lambda` is missing.");
}

CASE(ForwardWithoutGradient) {
  Launch launch = Forward();
  launch.attrs[2] = false;
  ExpectRefusal(launch, "`state` must have shape (state size,) = (672,), but has (832,).");
  launch.outputs[1].shape = {672};
  const RnntLossFusedTilingData data = TileWell(launch).data;
  ExpectEqual(data.needs_grad, 0, "needs_grad");
  ExpectEqual(data.state_samples_offset, 4 * 128, "state_samples_offset");
  ExpectEqual(data.state_bytes, 2688, "state_bytes");
  launch = Backward();
  launch.inputs[4].shape = {672};
  ExpectRefusal(launch, "`state` must have shape (state size,) = (832,), but has (672,).");
  launch = Forward();
  launch.attrs.resize(2);
  ExpectRefusal(launch, "`needs_grad` is missing.");
}

CASE(Workspace) {
  ExpectEqual(TileWell(Fused()).workspace_sizes, std::vector<size_t>{kSystemWorkspaceBytes + 3328},
              "fused");
  ExpectEqual(TileWell(Forward()).workspace_sizes, std::vector<size_t>{kSystemWorkspaceBytes},
              "forward");
  ExpectEqual(TileWell(Backward()).workspace_sizes, std::vector<size_t>{kSystemWorkspaceBytes},
              "backward");
}

CASE(WorkspaceDoesNotDependOnTheVocabularyOrTheChip) {
  Launch launch = Fused();
  launch.inputs[0].shape = {24, 50000};
  launch.outputs[1].shape = {24, 50000};
  launch.platform.vector_cores = 48;
  ExpectEqual(TileWell(launch).workspace_sizes, std::vector<size_t>{kSystemWorkspaceBytes + 3328},
              "workspace");
}

CASE(StateIsAtMost96BytesARow) {
  // The specification's largest shape, T=2000, U=500, in four utterances.
  const int64_t rows = int64_t{4} * 2000 * 501;
  const Shape state = rnnt_loss_fused::StateShape(rows, 4);
  ExpectEqual(state.size(), 1u, "rank");
  ExpectEqual(state[0] * 4, rows * 36 + 2240, "bytes");
}

CASE(Keys) {
  ExpectEqual(TileWell(Fused(ge::DT_FLOAT)).tiling_key, 11u, "fused float32");
  ExpectEqual(TileWell(Fused(ge::DT_FLOAT16)).tiling_key, 12u, "fused float16");
  ExpectEqual(TileWell(Fused(ge::DT_BF16)).tiling_key, 13u, "fused bfloat16");
  ExpectEqual(TileWell(Forward(ge::DT_FLOAT)).tiling_key, 21u, "forward float32");
  ExpectEqual(TileWell(Forward(ge::DT_FLOAT16)).tiling_key, 22u, "forward float16");
  ExpectEqual(TileWell(Forward(ge::DT_BF16)).tiling_key, 23u, "forward bfloat16");
  ExpectEqual(TileWell(Backward(ge::DT_FLOAT)).tiling_key, 31u, "backward float32");
  ExpectEqual(TileWell(Backward(ge::DT_FLOAT16)).tiling_key, 32u, "backward float16");
  ExpectEqual(TileWell(Backward(ge::DT_BF16)).tiling_key, 33u, "backward bfloat16");
}

CASE(LaunchOfAllCoresAtOnce) {
  Launch launch = Fused();
  for (const uint32_t cores : {1u, 40u, 48u}) {
    launch.platform.vector_cores = cores;
    const Outcome outcome = TileWell(launch);
    ExpectEqual(outcome.block_dim, cores, "block_dim");
    ExpectEqual(outcome.data.used_cores, cores, "used_cores");
    ExpectEqual(outcome.schedule_mode, 1u, "schedule_mode");
  }
  launch.platform.vector_cores = 100;  // more than the state has flags for
  ExpectEqual(TileWell(launch).block_dim, 64u, "block_dim");
}

CASE(Attributes) {
  Launch launch = Fused();
  launch.attrs = {int64_t{0}, 0.5f, false, false};
  RnntLossFusedTilingData data = TileWell(launch).data;
  ExpectEqual(data.blank, 0, "blank");
  ExpectEqual(data.clamp, 0.5f, "clamp");
  ExpectEqual(data.fused_log_softmax, 0, "fused_log_softmax");
  launch = Forward();
  launch.attrs = {int64_t{-5}, false, true, false};
  data = TileWell(launch).data;
  ExpectEqual(data.blank, 0, "blank of forward");
  ExpectEqual(data.fused_log_softmax, 0, "fused_log_softmax of forward");
}

CASE(StatusMayBeLeftOut) {
  Launch launch = Fused();
  launch.outputs.pop_back();
  ExpectEqual(TileWell(launch).data.has_status, 0, "has_status");
  launch.outputs.push_back({{}, ge::DT_UNDEFINED});
  ExpectEqual(TileWell(launch).data.has_status, 0, "has_status of an empty output");
}

CASE(EmptyBatchIsTiled) {
  Launch launch = Fused();
  launch.inputs = {
      {{0, 5}, ge::DT_FLOAT}, {{0, 0}, ge::DT_INT32}, {{0}, ge::DT_INT32}, {{0}, ge::DT_INT32}};
  launch.outputs = {{{0}, ge::DT_FLOAT}, {{0, 5}, ge::DT_FLOAT}};
  ExpectEqual(TileWell(launch).data.batch, 0, "batch");
}

CASE(LargeSizesFit) {
  Launch launch = Fused();
  launch.inputs[0].shape = {int64_t{1} << 33, 60000};
  launch.outputs[1].shape = launch.inputs[0].shape;
  const RnntLossFusedTilingData data = TileWell(launch).data;
  ExpectEqual(data.num_rows, int64_t{1} << 33, "num_rows");
  ExpectEqual(data.state_plane_bytes, int64_t{1} << 35, "state_plane_bytes");
}

// Tiles of a shape, through MakeTiling: pitch, columns and rows of a tile of logits.
std::vector<int32_t> LogitsTile(rnnt_loss_fused::ElementType type, int64_t vocab) {
  rnnt_loss_fused::Problem problem;
  problem.type = type;
  problem.sizes = {100000, vocab, 4, 100};
  const RnntLossFusedTilingData data = MakeTiling(problem, rnnt_loss_fused::Platform()).data;
  return {data.row_pitch, data.tile_columns, data.tile_rows};
}

CASE(TilesOfLogits) {
  using rnnt_loss_fused::ElementType;
  using Numbers = std::vector<int32_t>;
  // 147,200 bytes for two tiles in and two out: 9200 float32, 9152 in whole repeats.
  ExpectEqual(LogitsTile(ElementType::kFloat32, 5), Numbers{8, 5, 256}, "V=5");
  ExpectEqual(LogitsTile(ElementType::kFloat32, 50), Numbers{56, 50, 160}, "V=50");
  ExpectEqual(LogitsTile(ElementType::kFloat32, 128), Numbers{128, 128, 64}, "V=128");
  ExpectEqual(LogitsTile(ElementType::kFloat32, 500), Numbers{504, 500, 16}, "V=500");
  ExpectEqual(LogitsTile(ElementType::kFloat32, 5000), Numbers{5000, 5000, 1}, "V=5000");
  ExpectEqual(LogitsTile(ElementType::kFloat32, 9152), Numbers{9152, 9152, 1}, "V=9152");
  // Beyond UB: windows.
  ExpectEqual(LogitsTile(ElementType::kFloat32, 9153), Numbers{9152, 9152, 1}, "V=9153");
  ExpectEqual(LogitsTile(ElementType::kFloat32, 60000), Numbers{9152, 9152, 1}, "V=60000");
  // Half types take another tile of float32: 12,266 elements, 12,224 in whole repeats.
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16}) {
    ExpectEqual(LogitsTile(type, 5), Numbers{16, 5, 256}, "half, V=5");
    ExpectEqual(LogitsTile(type, 500), Numbers{512, 500, 16}, "half, V=500");
    ExpectEqual(LogitsTile(type, 60000), Numbers{12224, 12224, 1}, "half, V=60000");
  }
}

CASE(LatticeBuffers) {
  // Longest diagonal in whole repeats; cells of a stretch of inputs.
  const auto buffers = [](int64_t rows, int64_t target_columns) {
    rnnt_loss_fused::Problem problem;
    problem.sizes = {rows, 8, 1, target_columns};
    const RnntLossFusedTilingData data = MakeTiling(problem, rnnt_loss_fused::Platform()).data;
    return std::vector<int32_t>{data.lattice_lanes, data.lattice_chunk};
  };
  using Numbers = std::vector<int32_t>;
  ExpectEqual(buffers(1, 0), Numbers{64, 2048}, "one row");
  ExpectEqual(buffers(100000, 63), Numbers{64, 2048}, "63 labels");
  ExpectEqual(buffers(100000, 64), Numbers{128, 2048}, "64 labels");
  ExpectEqual(buffers(50, 500), Numbers{64, 2048}, "fewer rows than labels");
  ExpectEqual(buffers(1002000, 500), Numbers{512, 2048}, "500 labels");
  ExpectEqual(buffers(10000000, 1023), Numbers{1024, 1536}, "1023 labels");
}

CASE(StretchHoldsTheLongestDiagonal) {
  rnnt_loss_fused::Problem problem;
  for (int64_t columns = 0; columns <= rnnt_loss_fused::kMaxTargetColumns; ++columns) {
    problem.sizes = {int64_t{1} << 30, 8, 1, columns};
    const RnntLossFusedTilingData data = MakeTiling(problem, rnnt_loss_fused::Platform()).data;
    if (data.lattice_chunk < data.lattice_lanes || data.lattice_lanes <= columns) {
      harness::Fail(std::to_string(columns) + " labels do not fit");
    }
  }
}

CASE(EveryRowPitchFitsItsTile) {
  using rnnt_loss_fused::ElementType;
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat16}) {
    const int64_t tile = type == ElementType::kFloat32 ? 9152 : 12224;
    const int64_t block = type == ElementType::kFloat32 ? 8 : 16;
    for (int64_t vocab = 1; vocab <= 20000; ++vocab) {
      const std::vector<int32_t> numbers = LogitsTile(type, vocab);
      const bool is_whole = numbers[1] == vocab || (numbers[1] == tile && numbers[2] == 1);
      if (numbers[0] % block != 0 || numbers[0] < numbers[1] ||
          int64_t{numbers[0]} * numbers[2] > tile || numbers[2] < 1 || !is_whole) {
        harness::Fail("V=" + std::to_string(vocab) + ": " + harness::Show(numbers));
      }
    }
  }
}

CASE(DataTypesMustBeSupported) {
  ExpectRefusal(Fused(ge::DT_DOUBLE),
                "`logits` must be float32, float16 or bfloat16, but is another type.");
  Launch launch = Fused();
  launch.inputs[1].type = ge::DT_INT64;
  ExpectRefusal(launch, "`targets` must be int32, but is another type.");
  launch = Fused();
  launch.inputs[2].type = ge::DT_FLOAT;
  ExpectRefusal(launch, "`logit_lengths` must be int32, but is float32.");
  launch = Fused();
  launch.inputs[3].type = ge::DT_INT64;
  ExpectRefusal(launch, "`target_lengths` must be int32, but is another type.");
}

CASE(DataTypesMustAgree) {
  Launch launch = Fused(ge::DT_FLOAT16);
  launch.outputs[1].type = ge::DT_FLOAT;
  ExpectRefusal(launch, "`grad` must be float16, as `logits`, but is float32.");
  launch = Fused(ge::DT_FLOAT16);
  launch.outputs[0].type = ge::DT_FLOAT16;
  ExpectRefusal(launch, "`loss` must be float32, but is float16.");
  launch = Fused();
  launch.outputs[2].type = ge::DT_FLOAT;
  ExpectRefusal(launch, "`status` must be int32, but is float32.");
  launch = Forward();
  launch.outputs[1].type = ge::DT_FLOAT16;
  ExpectRefusal(launch, "`state` must be float32, but is float16.");
  launch = Backward(ge::DT_BF16);
  launch.outputs[0].type = ge::DT_FLOAT16;
  ExpectRefusal(launch, "`grad` must be bfloat16, as `logits`, but is float16.");
  launch = Backward();
  launch.inputs[5].type = ge::DT_FLOAT16;
  ExpectRefusal(launch, "`grad_loss` must be float32, but is float16.");
}

CASE(ShapesOfInputs) {
  Launch launch = Fused();
  launch.inputs[0].shape = {2, 4, 3, 5};
  ExpectRefusal(launch, "`logits` must have shape (N, V), but has (2, 4, 3, 5).");
  launch = Fused();
  launch.inputs[3].shape = {3};
  ExpectRefusal(launch, "`target_lengths` must have shape (B,) = (2,), but has (3,).");
}

CASE(ShapesOfOutputs) {
  Launch launch = Fused();
  launch.outputs[0].shape = {1};
  ExpectRefusal(launch, "`loss` must have shape (B,) = (2,), but has (1,).");
  launch = Fused();
  launch.outputs[1].shape = {24, 6};
  ExpectRefusal(launch, "`grad` must have shape (N, V) = (24, 5), but has (24, 6).");
  launch = Fused();
  launch.outputs[2].shape = {2, 1};
  ExpectRefusal(launch, "`status` must have shape (B,) = (2,), but has (2, 1).");
  launch = Forward();
  launch.outputs[1].shape = {5, 24};
  ExpectRefusal(launch, "`state` must have shape (state size,) = (832,), but has (5, 24).");
}

CASE(ShapesOfBackwardInputs) {
  Launch launch = Backward();
  launch.inputs[4].shape = {831};
  ExpectRefusal(launch, "`state` must have shape (state size,) = (832,), but has (831,).");
  launch = Backward();
  launch.inputs[5].shape = {};
  ExpectRefusal(launch, "`grad_loss` must have shape (B,) = (2,), but has ().");
}

CASE(BlankOutOfRange) {
  Launch launch = Fused();
  launch.attrs[0] = int64_t{5};
  ExpectRefusal(launch, "`blank` must be in [-5, 4], but is 5.");
  launch.attrs[0] = int64_t{-6};
  ExpectRefusal(launch, "`blank` must be in [-5, 4], but is -6.");
}

CASE(EverySizeMustBeKnown) {
  const std::string message =
      "Every size of `logits`, `targets`, `logit_lengths` and `target_lengths` must be known when "
      "the kernel is launched.";
  Launch launch = Fused();
  launch.inputs[0].shape = {-1, 5};
  ExpectRefusal(launch, message);
  launch = Fused();
  launch.inputs[0].shape = {-2};
  ExpectRefusal(launch, message);
  launch = Fused();
  launch.inputs[1].shape = {2, -1};
  ExpectRefusal(launch, message);
}

CASE(TooLarge) {
  Launch launch = Fused();
  launch.inputs[0].shape = {1, (int64_t{1} << 30) + 1};
  ExpectRefusal(launch,
                "The number of columns of `logits` must be at most 1073741824, but is 1073741825.");
  launch = Fused();
  for (size_t i : {1u, 2u, 3u}) launch.inputs[i].shape[0] = (1 << 20) + 1;
  ExpectRefusal(launch, "The batch size must be at most 1048576, but is 1048577.");
  launch = Fused();
  launch.inputs[1].shape = {2, 1024};
  ExpectRefusal(launch, "The number of columns of `targets` must be at most 1023, but is 1024.");
  launch.inputs[1].shape = {2, 1023};
  TileWell(launch);
}

CASE(MissingOperands) {
  Launch launch = Fused();
  launch.inputs.pop_back();
  ExpectRefusal(launch, "`target_lengths` is missing.");
  launch = Fused();
  launch.outputs.resize(1);
  ExpectRefusal(launch, "`grad` is missing.");
  launch = Backward();
  launch.inputs.pop_back();
  ExpectRefusal(launch, "`grad_loss` is missing.");
  launch = Fused();
  launch.attrs.resize(1);
  ExpectRefusal(launch, "`clamp` is missing.");
}

CASE(ChipMustBeLargeEnough) {
  Launch launch = Fused();
  launch.platform.ub_bytes = 131072;
  ExpectRefusal(launch,
                "The chip must have at least 1 vector core and 196352 bytes of UB, but has 40 and "
                "131072.");
  launch = Fused();
  launch.platform.vector_cores = 0;
  ExpectRefusal(launch,
                "The chip must have at least 1 vector core and 196352 bytes of UB, but has 0 and "
                "196352.");
  launch = Fused();
  launch.has_platform = false;
  ExpectRefusal(launch, "The platform is not known.");
}

CASE(TilingDataMustFit) {
  Launch launch = Fused();
  launch.tiling_capacity = sizeof(RnntLossFusedTilingData) - 1;
  ExpectRefusal(launch, "There is no room for the tiling data.");
}

CASE(NoContext) {
  for (const char* op_type : {"RnntLossFused", "RnntLossForward", "RnntLossBackward"}) {
    ExpectEqual(gert::OpImplRegisterV2::All().at(op_type).tiling(nullptr), ge::GRAPH_FAILED,
                op_type);
    ExpectEqual(gert::OpImplRegisterV2::All().at(op_type).tiling_parse(nullptr), ge::GRAPH_SUCCESS,
                op_type);
  }
}

}  // namespace
