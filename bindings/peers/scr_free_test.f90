! SCR's functions in free-form Fortran, with named datasets: the program goes on where an earlier run has ended, and says
! from where and to where.
program scr_free_test
  implicit none
  include 'mpif.h'
  include 'scrf.h'
  integer, parameter :: cells = 5000, steps_of_run = 4
  double precision :: field(cells)
  integer :: rank, step, begin, ierr, flag, valid, unit_number
  character(len=SCR_MAX_FILENAME) :: dataset, again, path
  character(len=64) :: text

  call MPI_INIT(ierr)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
  unit_number = 20 + rank

  text = 'left over'
  call SCR_CONFIG('SCR_CHECKPOINT_INTERVAL=1', text, ierr)
  call check(ierr == SCR_SUCCESS .and. text == ' ', 'SCR_CONFIG sets')
  call SCR_CONFIG('SCR_CHECKPOINT_INTERVAL', text, ierr)
  call check(ierr == SCR_SUCCESS .and. text == '1', 'SCR_CONFIG asks')
  call SCR_INIT(ierr)
  call check(ierr == SCR_SUCCESS, 'SCR_INIT')
  call SCR_GET_VERSION(text, ierr)
  call check(ierr == SCR_SUCCESS .and. text(1:5) == 'varve', 'SCR_GET_VERSION')

  step = 0
  call SCR_HAVE_RESTART(flag, dataset, ierr)
  call check(ierr == SCR_SUCCESS, 'SCR_HAVE_RESTART')
  if (flag == 1) then
    call SCR_START_RESTART(again, ierr)
    call check(ierr == SCR_SUCCESS .and. again == dataset, 'SCR_START_RESTART')
    read (dataset(6:), '(i4)') step
    call SCR_ROUTE_FILE(name_of_file(), path, ierr)
    call check(ierr == SCR_SUCCESS, 'SCR_ROUTE_FILE of a restart')
    open (unit=unit_number, file=path, form='unformatted', action='read', status='old')
    read (unit_number) field
    close (unit_number)
    call check(all(field == value_at(step)), 'the field is the one that was saved')
    valid = 1
    call SCR_COMPLETE_RESTART(valid, ierr)
    call check(ierr == SCR_SUCCESS, 'SCR_COMPLETE_RESTART')
  end if

  begin = step
  do step = begin + 1, begin + steps_of_run
    field = value_at(step)
    call SCR_NEED_CHECKPOINT(flag, ierr)
    call check(ierr == SCR_SUCCESS .and. flag == 1, 'SCR_NEED_CHECKPOINT')
    write (dataset, '("free.", i4.4)') step
    call SCR_START_OUTPUT(dataset, SCR_FLAG_CHECKPOINT + SCR_FLAG_OUTPUT, ierr)
    call check(ierr == SCR_SUCCESS, 'SCR_START_OUTPUT')
    call SCR_ROUTE_FILE(name_of_file(), path, ierr)
    call check(ierr == SCR_SUCCESS, 'SCR_ROUTE_FILE')
    open (unit=unit_number, file=path, form='unformatted', action='write')
    write (unit_number) field
    close (unit_number)
    valid = 1
    call SCR_COMPLETE_OUTPUT(valid, ierr)
    call check(ierr == SCR_SUCCESS, 'SCR_COMPLETE_OUTPUT')
    call SCR_SHOULD_EXIT(flag, ierr)
    call check(ierr == SCR_SUCCESS .and. flag == 0, 'SCR_SHOULD_EXIT')
  end do

  call SCR_CURRENT('no such dataset', ierr)
  call check(ierr /= SCR_SUCCESS, 'SCR_CURRENT of a name that is not there')
  call SCR_CURRENT(dataset, ierr)
  call check(ierr == SCR_SUCCESS, 'SCR_CURRENT')
  call SCR_FINALIZE(ierr)
  call check(ierr == SCR_SUCCESS, 'SCR_FINALIZE')
  if (rank == 0) print '("from ", i0, " to ", i0)', begin, begin + steps_of_run
  call MPI_FINALIZE(ierr)

contains

  elemental double precision function value_at(at)
    integer, intent(in) :: at
    value_at = 1000.0d0*at + rank
  end function

  function name_of_file() result(name)
    character(len=64) :: name
    write (name, '("free.", i4.4, "/rank_", i0, ".dat")') step, rank
  end function

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    integer :: ignored
    if (holds) return
    print '("rank ", i0, ": not so: ", a)', rank, what
    call MPI_ABORT(MPI_COMM_WORLD, 9, ignored)
  end subroutine
end program
