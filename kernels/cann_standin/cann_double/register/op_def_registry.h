// Double of a CANN header (see README.md).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "graph/types.h"

namespace ops {

enum Option { IGNORE = 0, OPTIONAL = 1, REQUIRED = 2, DYNAMIC = 3 };

class OpParamDef {
 public:
  explicit OpParamDef(const char* param_name) : name(param_name) {}
  OpParamDef& ParamType(Option value) { return option = value, *this; }
  OpParamDef& DataType(std::vector<ge::DataType> values) { return types = values, *this; }
  OpParamDef& Format(std::vector<ge::Format> values) { return formats = values, *this; }
  OpParamDef& UnknownShapeFormat(std::vector<ge::Format> values) {
    return unknown_shape_formats = values, *this;
  }
  OpParamDef& AutoContiguous() { return auto_contiguous = true, *this; }

  std::string name;
  Option option = REQUIRED;
  std::vector<ge::DataType> types;
  std::vector<ge::Format> formats;
  std::vector<ge::Format> unknown_shape_formats;
  bool auto_contiguous = false;
};

class OpAttrDef {
 public:
  explicit OpAttrDef(const char* attr_name) : name(attr_name) {}
  OpAttrDef& AttrType(Option value) { return option = value, *this; }
  OpAttrDef& Int(int64_t value) { return default_value = value, *this; }
  OpAttrDef& Float(float value) { return default_value = value, *this; }
  OpAttrDef& Bool(bool value) { return default_value = value, *this; }

  std::string name;
  Option option = REQUIRED;
  std::variant<std::monostate, int64_t, float, bool> default_value;
};

class OpAICoreConfig {
 public:
  OpAICoreConfig& DynamicCompileStaticFlag(bool value) { return Set("compile_static", value); }
  OpAICoreConfig& DynamicFormatFlag(bool value) { return Set("dynamic_format", value); }
  OpAICoreConfig& DynamicRankSupportFlag(bool value) { return Set("dynamic_rank", value); }
  OpAICoreConfig& DynamicShapeSupportFlag(bool value) { return Set("dynamic_shape", value); }
  OpAICoreConfig& NeedCheckSupportFlag(bool value) { return Set("check_support", value); }
  OpAICoreConfig& PrecisionReduceFlag(bool value) { return Set("precision_reduce", value); }
  OpAICoreConfig& ExtendCfgInfo(const char* key, const char* value) {
    return extended[key] = value, *this;
  }

  std::map<std::string, bool> flags;
  std::map<std::string, std::string> extended;

 private:
  OpAICoreConfig& Set(const char* key, bool value) { return flags[key] = value, *this; }
};

class OpAICoreDef {
 public:
  OpAICoreDef& AddConfig(const char* soc) { return configs[soc] = OpAICoreConfig(), *this; }
  OpAICoreDef& AddConfig(const char* soc, OpAICoreConfig& config) {
    return configs[soc] = config, *this;
  }

  std::map<std::string, OpAICoreConfig> configs;
};

class OpDef {
 public:
  explicit OpDef(const char* op_type) : type(op_type) {}
  OpParamDef& Input(const char* name) { return inputs.emplace_back(name); }
  OpParamDef& Output(const char* name) { return outputs.emplace_back(name); }
  OpAttrDef& Attr(const char* name) { return attrs.emplace_back(name); }
  OpAICoreDef& AICore() { return ai_core; }

  std::string type;
  std::deque<OpParamDef> inputs;
  std::deque<OpParamDef> outputs;
  std::deque<OpAttrDef> attrs;
  OpAICoreDef ai_core;
};

class OpDefFactory {
 public:
  using Creator = std::function<OpDef(const char*)>;
  static int Register(const char* op_type, const Creator& creator) {
    return All().emplace(op_type, creator(op_type)), 0;
  }
  static std::map<std::string, OpDef>& All() {
    static std::map<std::string, OpDef> all;
    return all;
  }
};

}  // namespace ops

#define OP_ADD(op_type)            \
  static int g_##op_type##_added = \
      ops::OpDefFactory::Register(#op_type, [](const char* name) { return op_type(name); })
