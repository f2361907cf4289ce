#include "engine/similarity.h"

#include "engine/scheme.h"

namespace varve {

namespace {
/// Of longer names std::regex could use up the stack: it goes deeper with each character.
constexpr size_t kMatchedBytesMax = 2048;

/// The name with what the expression matches made equal; as it is if it is too long, or too hard for the expression.
std::string matched(const std::string& name, const std::regex& expression) {
  if (name.size() > kMatchedBytesMax) return name;
  try {
    return std::regex_replace(name, expression, "#");
  } catch (const std::regex_error&) {
    return name;
  }
}
}  // namespace

Result<MatchRule> MatchRule::parse(const std::string& text) {
  MatchRule rule;
  rule.text_ = text;
  if (text == "exact" || text == "digits") return rule;
  try {
    rule.expression_ = std::make_shared<const std::regex>(text);
  } catch (const std::regex_error& error) {
    return Status::invalid_argument(std::string("not a regular expression: ") + error.what(), text,
                                    "a rule is `exact`, `digits` or a regular expression");
  }
  return rule;
}

std::string MatchRule::class_key(const Variable& variable, bool named_by_file) const {
  std::string name;
  if (expression_ != nullptr) {
    name = matched(variable.name, *expression_);
  } else if (text_ == "exact") {
    name = variable.name;
  } else if (named_by_file) {
    name = path_family(variable.name);
  } else {
    const size_t slash = variable.name.rfind('/');
    const size_t own = slash == std::string::npos ? 0 : slash;
    name = path_family(std::string_view(variable.name).substr(0, own)) + variable.name.substr(own);
  }
  const ElementType type = storage_type(variable);
  name += "_" + (variable.encoded ? "ENCODED" : type.name());
  name += variable.shape.empty() ? std::string("_Scalar") : "_Array" + std::to_string(variable.shape.size()) + "D";
  return name;
}

ElementType storage_type(const Variable& variable) { return variable.encoded ? ElementType{} : variable.type; }

}  // namespace varve
