!> The module varve, with varve_open(session, comm, ...) on the ranks of a communicator of the module mpi, or of mpif.h.
module varve_mpi
  use, intrinsic :: iso_c_binding, only: c_int, c_ptr, c_char
  use varve
  implicit none

  interface
    integer(c_int) function varve_c_open_mpi(comm, options, session) bind(c, name="varve_open_mpi_fortran")
      import
      integer(c_int), value :: comm
      type(varve_c_options), intent(in) :: options
      type(c_ptr), intent(out) :: session
    end function
  end interface
  private :: c_int, c_ptr, c_char, varve_open_mpi

  interface varve_open
    module procedure varve_open_mpi
  end interface

contains

  subroutine varve_open_mpi(session, comm, store, job, levels, group, effort, codec, options_file, stat, errmsg)
    type(varve_session), intent(out) :: session
    integer, intent(in) :: comm
    character(*), intent(in), optional :: store, job, levels, group, effort, codec, options_file
    integer, intent(out), optional :: stat
    character(*), intent(inout), optional :: errmsg
    type(varve_c_options) :: options
    character(kind=c_char), allocatable, target :: texts(:)
    type(c_ptr) :: handle
    integer(c_int) :: code
    call varve_fill_options(options, texts, store, job, levels, group, effort, codec, options_file)
    code = varve_c_open_mpi(int(comm, c_int), options, handle)
    call varve_opened(session, code, handle, stat, errmsg)
  end subroutine
end module
