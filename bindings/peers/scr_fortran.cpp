// SCR's functions for Fortran, as its compilers on Unix call: by address, with the lengths of texts at the end.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "scr.h"

namespace {

/// Fortran's text, which blanks fill up.
std::string text_of(const char* text, size_t length) {
  while (length > 0 && text[length - 1] == ' ') --length;
  return std::string(text, length);
}
void to_fortran(const char* text, char* into, size_t length) {
  const size_t bytes = std::min(std::strlen(text), length);
  std::memcpy(into, text, bytes);
  std::memset(into + bytes, ' ', length - bytes);
}

/// A name of a dataset; one that is blank is none, as NULL is in C.
class Name {
 public:
  Name(const char* text, size_t length) : text_(text_of(text, length)) {}
  const char* get() const { return text_.empty() ? nullptr : text_.c_str(); }

 private:
  const std::string text_;
};

}  // namespace

extern "C" {

void scr_init_(int* ierror) { *ierror = SCR_Init(); }
void scr_finalize_(int* ierror) { *ierror = SCR_Finalize(); }
void scr_should_exit_(int* flag, int* ierror) { *ierror = SCR_Should_exit(flag); }
void scr_need_checkpoint_(int* flag, int* ierror) { *ierror = SCR_Need_checkpoint(flag); }
void scr_start_checkpoint_(int* ierror) { *ierror = SCR_Start_checkpoint(); }
void scr_complete_checkpoint_(const int* valid, int* ierror) { *ierror = SCR_Complete_checkpoint(*valid); }
void scr_complete_output_(const int* valid, int* ierror) { *ierror = SCR_Complete_output(*valid); }
void scr_complete_restart_(const int* valid, int* ierror) { *ierror = SCR_Complete_restart(*valid); }
void scr_start_output_(const char* name, const int* flags, int* ierror, size_t length) {
  *ierror = SCR_Start_output(Name(name, length).get(), *flags);
}
void scr_have_restart_(int* flag, char* name, int* ierror, size_t length) {
  char found[SCR_MAX_FILENAME] = "";
  *ierror = SCR_Have_restart(flag, found);
  to_fortran(found, name, length);
}
void scr_start_restart_(char* name, int* ierror, size_t length) {
  char found[SCR_MAX_FILENAME] = "";
  *ierror = SCR_Start_restart(found);
  to_fortran(found, name, length);
}
void scr_route_file_(const char* name, char* file, int* ierror, size_t name_length, size_t file_length) {
  char found[SCR_MAX_FILENAME] = "";
  *ierror = SCR_Route_file(text_of(name, name_length).c_str(), found);
  if (*ierror == SCR_SUCCESS && std::strlen(found) > file_length) *ierror = !SCR_SUCCESS;
  to_fortran(found, file, file_length);
}
void scr_current_(const char* name, int* ierror, size_t length) { *ierror = SCR_Current(Name(name, length).get()); }
void scr_drop_(const char* name, int* ierror, size_t length) { *ierror = SCR_Drop(Name(name, length).get()); }
void scr_delete_(const char* name, int* ierror, size_t length) { *ierror = SCR_Delete(Name(name, length).get()); }
void scr_get_version_(char* version, int* ierror, size_t length) {
  to_fortran(SCR_Get_version(), version, length);
  *ierror = SCR_SUCCESS;
}
void scr_config_(const char* config, char* value, int* ierror, size_t config_length, size_t value_length) {
  const char* const found = SCR_Config(text_of(config, config_length).c_str());
  to_fortran(found != nullptr ? found : "", value, value_length);
  *ierror = SCR_SUCCESS;  // what is not set is blank
  std::free(const_cast<char*>(found));
}

}  // extern "C"
