#pragma once

// Which lock guards what, in the code: clang checks it (-Wthread-safety, `./run check threads`), other compilers see
// nothing. Constructors and destructors are not checked. A lambda is a function by itself: one that runs while the lock
// is held says VARVE_REQUIRES after its parameters.

#if defined(__clang__)
#define VARVE_THREAD_ANNOTATION(...) __attribute__((__VA_ARGS__))
#else
#define VARVE_THREAD_ANNOTATION(...)
#endif

/// Of a class: it is a lock; `name` is what messages call it.
#define VARVE_CAPABILITY(name) VARVE_THREAD_ANNOTATION(capability(name))
/// Of a class: it holds a lock while it lives.
#define VARVE_SCOPED_CAPABILITY VARVE_THREAD_ANNOTATION(scoped_lockable)

/// Of a variable: it is read and written while the lock is held, and not otherwise.
#define VARVE_GUARDED_BY(lock) VARVE_THREAD_ANNOTATION(guarded_by(lock))
/// Of a pointer: what it points at is.
#define VARVE_PT_GUARDED_BY(lock) VARVE_THREAD_ANNOTATION(pt_guarded_by(lock))

/// Of a lock: who holds both took this one first, or last.
#define VARVE_ACQUIRED_BEFORE(...) VARVE_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
#define VARVE_ACQUIRED_AFTER(...) VARVE_THREAD_ANNOTATION(acquired_after(__VA_ARGS__))

/// Of a function: who calls it holds the lock.
#define VARVE_REQUIRES(...) VARVE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
/// Of a function: who calls it does not.
#define VARVE_EXCLUDES(...) VARVE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
/// Of a function: it takes the lock, and leaves it taken; without arguments, that of its object.
#define VARVE_ACQUIRE(...) VARVE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define VARVE_RELEASE(...) VARVE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
/// The first argument: what it returns if it took the lock.
#define VARVE_TRY_ACQUIRE(...) VARVE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
/// Of a function: it returns a reference to this lock.
#define VARVE_RETURN_CAPABILITY(lock) VARVE_THREAD_ANNOTATION(lock_returned(lock))

/// Of a function that the check cannot follow; why is said beside it.
#define VARVE_NO_THREAD_SAFETY_ANALYSIS VARVE_THREAD_ANNOTATION(no_thread_safety_analysis)
