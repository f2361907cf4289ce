// varve._mpi: opens sessions of the ranks of an MPI communicator. A module of its own, so that Python without MPI can
// import varve.
#include "native.h"
#include "varve/varve_mpi.h"

namespace py = pybind11;

PYBIND11_MODULE(_mpi, module) {
  module.def(
      "open",
      [](long long ranks, const py::dict& said) {
        const varve::python::Options options(said);
        varve_session* session = nullptr;
        int code = VARVE_OK;
        {
          const py::gil_scoped_release others_may_run;
          code = varve_open_mpi_fortran(static_cast<MPI_Fint>(ranks), options.get(), &session);
        }
        if (code != VARVE_OK) varve::python::raise_without_session(code);
        return reinterpret_cast<uintptr_t>(session);
      },
      "A session of the ranks of a communicator, which is given as Fortran has it; for _native.Session(address).");
  module.def(
      "library",
      [] {
        char name[MPI_MAX_LIBRARY_VERSION_STRING] = {};
        int length = 0;
        MPI_Get_library_version(name, &length);
        return std::string(name, static_cast<size_t>(length));
      },
      "What the MPI library that this module uses calls itself.");
}
