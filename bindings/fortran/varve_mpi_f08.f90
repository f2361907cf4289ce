!> The module varve, with varve_open(session, comm, ...) on the ranks of a communicator of the module mpi_f08.
module varve_mpi_f08
  use mpi_f08, only: MPI_Comm
  use varve_mpi
  implicit none
  private :: MPI_Comm, varve_open_mpi_f08

  interface varve_open
    module procedure varve_open_mpi_f08
  end interface

contains

  subroutine varve_open_mpi_f08(session, comm, store, job, levels, group, effort, codec, options_file, stat, errmsg)
    type(varve_session), intent(out) :: session
    type(MPI_Comm), intent(in) :: comm
    character(*), intent(in), optional :: store, job, levels, group, effort, codec, options_file
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    call varve_open(session, comm%MPI_VAL, store, job, levels, group, effort, codec, options_file, stat, errmsg)
  end subroutine
end module
