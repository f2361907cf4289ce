#ifdef VARVE_ZOO_WITH_HDF5
#include "zoo/hdf5_writing.h"

namespace varve::zoo {
namespace {

struct Named {
  const char* name;
  hid_t type;
};

void add_numbers(hid_t group) {
  Id properties = creation_properties();
  for (const Named& one : {Named{"i8", H5T_STD_I8LE},  {"u8", H5T_STD_U8BE},
                           {"i16", H5T_STD_I16LE},     {"i16be", H5T_STD_I16BE},
                           {"u16", H5T_STD_U16LE},     {"u16be", H5T_STD_U16BE},
                           {"i32", H5T_STD_I32LE},     {"i32be", H5T_STD_I32BE},
                           {"u32", H5T_STD_U32LE},     {"u32be", H5T_STD_U32BE},
                           {"i64", H5T_STD_I64LE},     {"i64be", H5T_STD_I64BE},
                           {"u64", H5T_STD_U64LE},     {"u64be", H5T_STD_U64BE},
                           {"f32", H5T_IEEE_F32LE},    {"f32be", H5T_IEEE_F32BE},
                           {"f64", H5T_IEEE_F64LE},    {"f64be", H5T_IEEE_F64BE},
                           {"bits8", H5T_STD_B8LE},    {"bits32be", H5T_STD_B32BE},
                           {"vax float", H5T_VAX_F32}, {"long double", H5T_NATIVE_LDOUBLE}}) {
    add_dataset(group, one.name, one.type, {6, 5}, properties);
  }
  Id half(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  h5(H5Tset_fields(half, 15, 10, 5, 0, 10), "define a 16-bit float");
  h5(H5Tset_size(half, 2), "define a 16-bit float");
  h5(H5Tset_ebias(half, 15), "define a 16-bit float");
  add_dataset(group, "f16", half, {40}, properties);
  Id odd(H5Tcopy(H5T_STD_I32LE), H5Tclose);
  h5(H5Tset_precision(odd, 24), "define a 24-bit integer");
  h5(H5Tset_size(odd, 3), "define a 24-bit integer");
  add_dataset(group, "i24", odd, {11}, properties);
}

void add_enums_and_texts(hid_t group) {
  Id properties = creation_properties();
  Id boolean(H5Tenum_create(H5T_STD_I8LE), H5Tclose);
  int8_t no = 0, yes = 1;
  h5(H5Tenum_insert(boolean, "FALSE", &no), "define an enum");
  h5(H5Tenum_insert(boolean, "TRUE", &yes), "define an enum");
  add_dataset(group, "bool", boolean, {17}, properties);
  Id colour(H5Tenum_create(H5T_STD_U16BE), H5Tclose);
  uint16_t red = 0x100;
  h5(H5Tenum_insert(colour, "red", &red), "define an enum");
  add_dataset(group, "enum", colour, {9}, properties);

  Id fixed(H5Tcopy(H5T_C_S1), H5Tclose);
  h5(H5Tset_size(fixed, 80), "define a text");
  add_dataset(group, "text", fixed, {4}, properties);
  Id variable(H5Tcopy(H5T_C_S1), H5Tclose);
  h5(H5Tset_size(variable, H5T_VARIABLE), "define a text of variable length");
  Id space = simple_space({3});
  Id dataset(H5Dcreate2(group, "vlen text", variable, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
  const char* words[3] = {"one", "", "a longer third text"};
  h5(H5Dwrite(dataset, variable, H5S_ALL, H5S_ALL, H5P_DEFAULT, words), "write texts");
}

void add_composites(hid_t group) {
  Id properties = creation_properties();
  struct Particle {
    double position[3];
    int32_t kind;
  };
  hsize_t three = 3;
  Id vector(H5Tarray_create2(H5T_IEEE_F64LE, 1, &three), H5Tclose);
  Id particle(H5Tcreate(H5T_COMPOUND, sizeof(Particle)), H5Tclose);
  h5(H5Tinsert(particle, "position", offsetof(Particle, position), vector), "define a compound");
  h5(H5Tinsert(particle, "kind", offsetof(Particle, kind), H5T_STD_I32LE), "define a compound");
  add_dataset(group, "compound", particle, {12}, properties);
  add_dataset(group, "array", vector, {4, 2}, properties);
  hsize_t two_by_two[2] = {2, 2};
  Id nested(H5Tarray_create2(vector, 2, two_by_two), H5Tclose);
  add_dataset(group, "array of arrays", nested, {5}, properties);
  Id chunked = creation_properties({2, 2});
  add_dataset(group, "chunked array", vector, {4, 3}, chunked);
  Id opaque(H5Tcreate(H5T_OPAQUE, 13), H5Tclose);
  add_dataset(group, "opaque", opaque, {6}, properties);

  Id lists(H5Tvlen_create(H5T_STD_I32LE), H5Tclose);
  int32_t numbers[4] = {1, 2, 3, 4};
  hvl_t values[2] = {{4, numbers}, {1, numbers + 2}};
  Id space = simple_space({2});
  Id vlen(H5Dcreate2(group, "vlen", lists, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
  h5(H5Dwrite(vlen, lists, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), "write lists");

  hobj_ref_t references[2];
  h5(H5Rcreate(&references[0], group, "array", H5R_OBJECT, -1), "make a reference");
  h5(H5Rcreate(&references[1], group, "vlen", H5R_OBJECT, -1), "make a reference");
  Id referring(H5Dcreate2(group, "reference", H5T_STD_REF_OBJ, space, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
  h5(H5Dwrite(referring, H5T_STD_REF_OBJ, H5S_ALL, H5S_ALL, H5P_DEFAULT, references), "write references");
}

}  // namespace

void add_typed_datasets(hid_t group) {
  add_numbers(group);
  add_enums_and_texts(group);
  add_composites(group);
  Id properties = creation_properties();
  add_dataset(group, "scalar", H5T_IEEE_F64LE, {}, properties);
  Id nothing(H5Screate(H5S_NULL), H5Sclose);
  Id null(H5Dcreate2(group, "null", H5T_STD_I32LE, nothing, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
  Id none = simple_space({0, 4});
  Id empty(H5Dcreate2(group, "empty", H5T_STD_I32LE, none, H5P_DEFAULT, properties, H5P_DEFAULT), H5Dclose);
}

}  // namespace varve::zoo
#endif
