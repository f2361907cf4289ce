#include "zoo/pattern.h"
#include "zoo/zoo.h"

#ifdef VARVE_ZOO_WITH_NETCDF
#include <netcdf.h>

#include <stdexcept>
#include <string>
#endif

namespace varve::zoo {

#ifdef VARVE_ZOO_WITH_NETCDF
namespace {

constexpr size_t kRecords = 5;

void check(int status, const char* what) {
  if (status != NC_NOERR) throw std::runtime_error(std::string("zoo: netCDF ") + what + ": " + nc_strerror(status));
}

struct VariableSpec {
  const char* name;
  nc_type type;
  std::vector<const char*> dimensions;
};

size_t dimension_length(const std::string& name) {
  return name == "time" ? kRecords : name == "x" ? 7 : name == "y" ? 3 : 5;
}

void write_variable(int file, int id, const VariableSpec& spec, uint32_t seed) {
  std::vector<size_t> start(spec.dimensions.size(), 0), count;
  size_t values = 1;
  for (const char* name : spec.dimensions) {
    count.push_back(dimension_length(name));
    values *= count.back();
  }
  // Any bits are a value of any type but char; nc_put_vara takes memory in the variable's own type.
  std::vector<char> data = pattern(values * 8, seed);
  check(nc_put_vara(file, id, start.data(), count.data(), data.data()), "write a variable");
}

void make_file(const std::filesystem::path& path, int mode, const std::vector<VariableSpec>& specs) {
  int file = -1;
  check(nc_create(path.c_str(), NC_CLOBBER | mode, &file), "create a file");
  check(nc_put_att_text(file, NC_GLOBAL, "title", 22, "checkpoint of a program"), "write an attribute");
  double numbers[3] = {1, 2, 3};
  check(nc_put_att_double(file, NC_GLOBAL, "numbers", NC_DOUBLE, 3, numbers), "write an attribute");
  for (const char* name : {"time", "x", "y", "z"}) {
    int unused = 0;
    size_t length = std::string(name) == "time" ? NC_UNLIMITED : dimension_length(name);
    check(nc_def_dim(file, name, length, &unused), "define a dimension");
  }
  std::vector<int> ids;
  for (const VariableSpec& spec : specs) {
    std::vector<int> dimensions;
    for (const char* name : spec.dimensions) {
      int id = 0;
      check(nc_inq_dimid(file, name, &id), "find a dimension");
      dimensions.push_back(id);
    }
    ids.push_back(0);
    check(nc_def_var(file, spec.name, spec.type, static_cast<int>(dimensions.size()), dimensions.data(), &ids.back()),
          "define a variable");
    check(nc_put_att_text(file, ids.back(), "units", 3, "m/s"), "write an attribute");
  }
  check(nc_enddef(file), "end the definitions");
  for (size_t i = 0; i < specs.size(); ++i) write_variable(file, ids[i], specs[i], static_cast<uint32_t>(i));
  check(nc_close(file), "close a file");
}

}  // namespace

void make_netcdf_files(const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  std::vector<VariableSpec> specs{{"scalar", NC_INT, {}},
                                  {"bytes", NC_BYTE, {"y"}},
                                  {"letters", NC_CHAR, {"x", "y"}},
                                  {"shorts", NC_SHORT, {"y", "z"}},
                                  {"ints", NC_INT, {"x"}},
                                  {"floats", NC_FLOAT, {"x", "y", "z"}},
                                  {"doubles", NC_DOUBLE, {"z", "y"}},
                                  {"time", NC_DOUBLE, {"time"}},
                                  {"record bytes", NC_BYTE, {"time", "y"}},
                                  {"record shorts", NC_SHORT, {"time", "x"}},
                                  {"record floats", NC_FLOAT, {"time", "x", "y"}}};
  make_file(directory / "classic.nc", 0, specs);
  make_file(directory / "offset64.nc", NC_64BIT_OFFSET, specs);
  make_file(directory / "netcdf4.nc", NC_NETCDF4, specs);
  specs.insert(specs.begin() + 3, {{"unsigned bytes", NC_UBYTE, {"y"}},
                                   {"unsigned shorts", NC_USHORT, {"z"}},
                                   {"unsigned ints", NC_UINT, {"z"}},
                                   {"long ints", NC_INT64, {"x"}},
                                   {"unsigned long ints", NC_UINT64, {"x"}},
                                   {"record long ints", NC_INT64, {"time", "z"}}});
  make_file(directory / "data64.nc", NC_64BIT_DATA, specs);
  make_file(directory / "only_record_bytes.nc", 0, {{"fixed", NC_INT, {"x"}}, {"series", NC_BYTE, {"time", "y"}}});
  make_file(directory / "only_record_doubles.nc", NC_64BIT_OFFSET, {{"series", NC_DOUBLE, {"time", "x"}}});
  make_file(directory / "no_variables.nc", 0, {});
}
#else
void make_netcdf_files(const std::filesystem::path& directory) { std::filesystem::create_directories(directory); }
#endif

}  // namespace varve::zoo
