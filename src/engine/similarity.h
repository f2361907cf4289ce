#pragma once

#include <memory>
#include <regex>
#include <string>

#include "layout/layout.h"

namespace varve {

/// How variable names are made equal, so that variables with the same meaning fall into one similarity class.
///
/// - exact: names as they are.
/// - digits (the default): runs of digits in group names count as equal (`/Grid00000142/Density` of all grids), those
/// in a variable's own name do not
///   (`velocity_1` and `velocity_2` are different things), and those in a file's name do where that names the variable
///   (`restart.0`, `restart.1`).
/// - a regular expression: whatever it matches counts as equal.
class MatchRule {
 public:
  MatchRule() = default;  ///< digits
  /// "exact", "digits" or an ECMAScript regular expression.
  static Result<MatchRule> parse(const std::string& text);
  const std::string& text() const { return text_; }

  /// The class key `Group/Name_Datatype_Class` of mcrEngine, section III: "/Grid#/Density_F32BE_Array2D".
  /// `named_by_file`: the variable bears the name of its file, which says nothing of the variables in it.
  std::string class_key(const Variable& variable, bool named_by_file) const;

 private:
  std::string text_ = "digits";
  std::shared_ptr<const std::regex> expression_;
};

/// The element type by which a variable's stored bytes are encoded: its own, or BYTES if they are not plain elements.
ElementType storage_type(const Variable& variable);

}  // namespace varve
