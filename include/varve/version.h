#ifndef VARVE_VERSION_H
#define VARVE_VERSION_H

/* NOLINTBEGIN(modernize-*): this is C, too */

/* The version of these headers, and of the library beside them (CMakeLists.txt reads it here). */
#define VARVE_VERSION_MAJOR 1
#define VARVE_VERSION_MINOR 0
#define VARVE_VERSION_PATCH 0

/* A version as one number: #if VARVE_VERSION >= VARVE_MAKE_VERSION(1, 1, 0) */
#define VARVE_MAKE_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define VARVE_VERSION VARVE_MAKE_VERSION(VARVE_VERSION_MAJOR, VARVE_VERSION_MINOR, VARVE_VERSION_PATCH)

#define VARVE_TEXT_OF_INNER(word) #word
#define VARVE_TEXT_OF(word) VARVE_TEXT_OF_INNER(word)
/* "1.0.0" */
#define VARVE_VERSION_TEXT \
  VARVE_TEXT_OF(VARVE_VERSION_MAJOR) "." VARVE_TEXT_OF(VARVE_VERSION_MINOR) "." VARVE_TEXT_OF(VARVE_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that the program was linked with, which may be another than that of the headers which it
 * was compiled with: as VARVE_VERSION, and as text. */
int varve_version(void);
const char* varve_version_text(void);

#ifdef __cplusplus
}

extern "C++" {  // whoever includes this
namespace varve {

/// varve_version() and varve_version_text().
inline int version() { return ::varve_version(); }
inline const char* version_text() { return ::varve_version_text(); }

}  // namespace varve
}
#endif

/* NOLINTEND(modernize-*) */

#endif /* VARVE_VERSION_H */
