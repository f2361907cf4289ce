! The modules on ranks: a field cut along its slowest dimension comes back on any number of them.
!
!   mpi_session_test FOLDER save|load [old]     old: by a communicator of mpi.h, not of mpi_f08
program mpi_session_test
  use mpi_f08
  use varve_mpi_f08
  use, intrinsic :: iso_fortran_env
  implicit none
  integer, parameter :: width = 6, height = 24
  type(varve_session) :: session
  real(real64), allocatable, target :: field(:, :)
  character(4096) :: store, what, how
  integer :: rank, ranks, first, last, x, y, step
  logical :: restarted

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call get_command_argument(1, store)
  call get_command_argument(2, what)
  call get_command_argument(3, how)
  first = height * rank / ranks
  last = height * (rank + 1) / ranks - 1
  allocate (field(0:width + 1, first:last))  ! with ghost cells at both sides
  field = -1
  if (how == "old") then
    call varve_open(session, MPI_COMM_WORLD%MPI_VAL, store=store, job="fortran-mpi")
  else
    call varve_open(session, MPI_COMM_WORLD, store=store, job="fortran-mpi")
  end if
  call varve_protect(session, "field", field, global_shape=[width, height], offset=[0, first], ghosts_low=[1, 0], &
      ghosts_high=[1, 0])
  step = 0
  if (what == "save") then
    do y = first, last
      do x = 1, width
        field(x, y) = 100 * x + y
      end do
    end do
    call varve_checkpoint(session, 12, now=.true.)
  else
    call varve_restart(session, step, restarted)
    if (.not. restarted .or. step /= 12) error stop "not restarted"
    do y = first, last
      do x = 1, width
        if (field(x, y) /= 100 * x + y) error stop "another value"
      end do
    end do
    if (any(field(0, :) /= -1) .or. any(field(width + 1, :) /= -1)) error stop "ghost cells were touched"
  end if
  call varve_close(session)
  call MPI_Finalize()
end program
