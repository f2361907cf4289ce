! The same program as heat.cpp, in Fortran: the heat equation on a plate, cut into columns among the MPI ranks. The lines marked
! [varve] make it survive being killed: run it again, and it goes on from its last checkpoint.
!
!   mpirun -n 4 heat_f [steps [rows [columns]]]
program heat
  use mpi_f08
  use varve_mpi_f08                                                  ! [varve]
  use, intrinsic :: iso_fortran_env, only: real64
  implicit none
  type(varve_session) :: session                                     ! [varve]
  ! This rank's columns of the plate, with one more on each side that belong to the neighbours.
  real(real64), allocatable, target :: now(:, :), next(:, :)
  integer :: steps, rows, columns, step, rank, ranks, first, last, r, c
  real(real64) :: all

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  steps = argument(1, 1000)
  rows = argument(2, 512)
  columns = argument(3, 512)
  first = columns * rank / ranks + 1
  last = columns * (rank + 1) / ranks
  allocate (now(rows, first - 1:last + 1), next(rows, first - 1:last + 1))
  now = 0
  c = columns / 2 + 1  ! a hot spot in the middle
  if (c >= first .and. c <= last) now(rows / 2 + 1, c) = 1e6_real64
  step = 0

  call varve_open(session, MPI_COMM_WORLD)                           ! [varve]
  call varve_protect(session, "temperature", now)                    ! [varve]
  call varve_restart(session, step)                                  ! [varve]

  do while (step < steps)
    call exchange_borders()
    next = now
    do c = first, last
      do r = 2, rows - 1
        next(r, c) = now(r, c) + 0.2_real64 * (now(r - 1, c) + now(r + 1, c) + now(r, c - 1) + now(r, c + 1) - 4 * now(r, c))
      end do
    end do
    now = next
    step = step + 1
    if (varve_due(session, step)) call varve_checkpoint(session, step)  ! [varve]
    if (varve_should_stop(session)) exit                             ! [varve]
  end do
  call varve_close(session)                                          ! [varve]

  call MPI_Reduce(sum(now(:, first:last)), all, 1, MPI_DOUBLE_PRECISION, MPI_SUM, 0, MPI_COMM_WORLD)
  if (rank == 0) print '(a, i0, a, g0.17)', "after ", step, " steps the plate holds ", all
  call MPI_Finalize()

contains

  subroutine exchange_borders()
    integer :: left, right
    left = merge(rank - 1, MPI_PROC_NULL, rank > 0)
    right = merge(rank + 1, MPI_PROC_NULL, rank + 1 < ranks)
    call MPI_Sendrecv(now(:, first), rows, MPI_DOUBLE_PRECISION, left, 0, now(:, last + 1), rows, MPI_DOUBLE_PRECISION, &
        right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(now(:, last), rows, MPI_DOUBLE_PRECISION, right, 1, now(:, first - 1), rows, MPI_DOUBLE_PRECISION, &
        left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  end subroutine

  integer function argument(number, otherwise)
    integer, intent(in) :: number, otherwise
    character(32) :: text
    argument = otherwise
    call get_command_argument(number, text)
    if (text /= "") read (text, *) argument
  end function
end program
