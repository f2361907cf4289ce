! The Fortran modules without MPI: what they save comes back, also what a C program saved, and the other way round. The
! folder to work in is its argument.
module session_test_parts
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env
  use varve
  implicit none
  character(4096) :: store

  interface
    subroutine c_saves(store) bind(c)
      import
      character(kind=c_char), intent(in) :: store(*)
    end subroutine
    integer(c_int) function c_finds(store) bind(c)
      import
      character(kind=c_char), intent(in) :: store(*)
    end function
  end interface

contains

  subroutine check(condition, what)
    logical, intent(in) :: condition
    character(*), intent(in) :: what
    if (condition) return
    write (error_unit, '(2a)') "not so: ", what
    error stop 1
  end subroutine

  subroutine kinds_and_ranks_come_back()
    type(varve_session) :: session
    integer(int8), target :: i8(3)
    integer(int16), target :: i16(2, 3)
    integer(int32), target :: i32(2, 3, 2)
    integer(int64), target :: i64(2, 2, 2, 2)
    real(real32), target :: r32(2, 2, 2, 2, 2)
    real(real64), target :: r64(2, 1, 2, 1, 2, 3)
    complex(real32), target :: c32(2, 1, 2, 1, 2, 1, 3)
    complex(real64), target :: c64, none(0)
    real(real128), target :: r128(4)
    real(real64), target :: scalar
    integer :: i, step
    logical :: restarted
    call varve_open(session, store=store, job="kinds")
    call protect_all()
    i8 = [1_int8, -2_int8, 3_int8]
    i16 = reshape([(int(i, int16), i=1, 6)], shape(i16))
    i32 = reshape([(i * 100000, i=1, 12)], shape(i32))
    i64 = reshape([(i * 10000000000_int64, i=1, 16)], shape(i64))
    r32 = reshape([(i / 3.0_real32, i=1, 32)], shape(r32))
    r64 = reshape([(i / 7.0_real64, i=1, 24)], shape(r64))
    c32 = reshape([(cmplx(i, -i, real32), i=1, 24)], shape(c32))
    c64 = (1.5_real64, -2.5_real64)
    r128 = [(sqrt(real(i, real128)), i=1, 4)]
    scalar = 42
    step = 7
    call varve_checkpoint(session, step, now=.true.)
    call varve_close(session)
    i8 = 0; i16 = 0; i32 = 0; i64 = 0; r32 = 0; r64 = 0; c32 = 0; c64 = 0; r128 = 0; scalar = 0
    step = 0
    call varve_open(session, store=store, job="kinds")
    call protect_all()
    call varve_restart(session, step, restarted)
    call check(restarted .and. step == 7, "the step is 7")
    call check(all(i8 == [1_int8, -2_int8, 3_int8]), "int8")
    call check(all(i16 == reshape([(int(i, int16), i=1, 6)], shape(i16))), "int16")
    call check(all(i32 == reshape([(i * 100000, i=1, 12)], shape(i32))), "int32")
    call check(all(i64 == reshape([(i * 10000000000_int64, i=1, 16)], shape(i64))), "int64")
    call check(all(r32 == reshape([(i / 3.0_real32, i=1, 32)], shape(r32))), "real32")
    call check(all(r64 == reshape([(i / 7.0_real64, i=1, 24)], shape(r64))), "real64")
    call check(all(c32 == reshape([(cmplx(i, -i, real32), i=1, 24)], shape(c32))), "complex32")
    call check(c64 == (1.5_real64, -2.5_real64), "complex64")
    call check(all(r128 == [(sqrt(real(i, real128)), i=1, 4)]), "real128")
    call check(scalar == 42, "a scalar")
    call varve_close(session)
  contains
    subroutine protect_all()
      call varve_protect(session, "i8", i8)
      call varve_protect(session, "i16", i16)
      call varve_protect(session, "i32", i32)
      call varve_protect(session, "i64", i64)
      call varve_protect(session, "r32", r32)
      call varve_protect(session, "r64", r64)
      call varve_protect(session, "c32", c32)
      call varve_protect(session, "c64", c64)
      call varve_protect(session, "none", none)
      call varve_protect(session, "r128", r128)
      call varve_protect(session, "scalar", scalar)
    end subroutine
  end subroutine

  subroutine an_older_step_is_chosen_and_rejected()
    type(varve_session) :: session
    integer(int64) :: value
    integer(int64), target :: kept
    integer(int64) :: step
    integer :: stat
    logical :: restarted
    call varve_open(session, store=store, job="steps")
    call varve_protect(session, "kept", kept)
    do value = 10, 30, 10
      kept = value
      call varve_checkpoint(session, value, now=.true.)
    end do
    step = 0
    call varve_restart(session, step, restarted, at_most=25_int64)
    call check(restarted .and. step == 20 .and. kept == 20, "the newest at or below 25")
    call varve_reject(session, step, restarted)
    call check(restarted .and. step == 10 .and. kept == 10, "the one before that")
    call varve_drop(session, 30)
    call varve_restart(session, step, restarted)
    call check(restarted .and. step == 10 .and. kept == 10, "30 was dropped, and 20 stays rejected")
    call varve_drop(session, 30, stat=stat)
    call check(stat == varve_not_found, "what was dropped is not there")
    call varve_restart(session, step, restarted, at_most=-1_int64, stat=stat)
    call check(stat == varve_invalid_argument .and. .not. restarted .and. step == 10, "no step is below 0")
    call varve_checkpoint(session, -1_int64, now=.true., stat=stat)
    call check(stat == varve_invalid_argument, "nor is one made")
    call varve_drop(session, -1, stat=stat)
    call check(stat == varve_invalid_argument, "nor dropped")
    call varve_close(session)
  end subroutine

  subroutine where_nothing_is_found_the_step_stays()
    type(varve_session) :: session
    integer, target :: kept
    integer :: step, stat
    logical :: restarted
    character(200) :: message
    call varve_open(session, store=store, job="nothing")
    call varve_protect(session, "kept", kept)
    kept = 5
    step = -1
    call varve_restart(session, step, restarted)
    call check(.not. restarted .and. step == -1, "there is nothing to restart from")
    stat = -7
    call varve_restart(session, step, restarted, stat=stat)
    call check(.not. restarted .and. step == -1 .and. stat == varve_ok, "that is no failure")
    call varve_restart(session, step, exactly=99, stat=stat, errmsg=message)
    call check(stat == varve_not_found .and. step == -1, "what was wanted is not there: " // message)
    call varve_reject(session, step, stat=stat, errmsg=message)
    call check(stat == varve_invalid_argument .and. step == -1, "nothing was loaded that could be rejected: " // message)
    call varve_checkpoint(session, 2_int64 ** 40, now=.true.)
    call varve_restart(session, step, stat=stat, errmsg=message)
    call check(stat == varve_unsupported .and. step == -1, "a step that is too large is an error: " // message)
    call varve_close(session)
  end subroutine

  subroutine failures_say_what_happened()
    type(varve_session) :: session
    real(real64), target :: values(4, 4)
    character(200) :: message
    integer :: step, stat
    call varve_open(session, store="/proc/no/such/place", job="fails", stat=stat, errmsg=message)
    call check(stat /= varve_ok .and. index(message, "/proc/no/such") > 0, "the store is named: " // message)
    call varve_open(session, store=store, job="fails")
    values = 1
    call varve_protect(session, "rows", values(1:2, :), stat=stat, errmsg=message)
    call check(stat == varve_invalid_argument .and. index(message, "contiguous") > 0, "a section with gaps is refused")
    call varve_protect(session, "columns", values(:, 2:3), stat=stat)
    call check(stat == varve_ok, "a section without gaps is taken")
    call varve_protect(session, "part", values, global_shape=[4], stat=stat, errmsg=message)
    call check(stat == varve_invalid_argument .and. index(message, "dimensions") > 0, "a shape of fewer dimensions is refused")
    step = 1
    call varve_restart(session, step, exactly=99, stat=stat)
    call check(stat == varve_not_found .and. step == 1, "there is no step 99")
    call varve_close(session)
  end subroutine

  subroutine c_and_fortran_read_each_other()
    type(varve_session) :: session
    real(real64), target :: t(5, 3)
    integer :: step, x, y
    call c_saves(trim(store) // c_null_char)
    call varve_open(session, store=store, job="c")
    call varve_protect(session, "t", t)
    step = 0
    call varve_restart(session, step)
    call check(step == 4, "the step that C saved")
    do y = 1, 3
      do x = 1, 5
        call check(t(x, y) == 10 * (y - 1) + x - 1, "C's t[y][x] is t(x, y)")
      end do
    end do
    call varve_close(session)
    call varve_open(session, store=store, job="fortran")
    call varve_protect(session, "t", t)
    call varve_checkpoint(session, 5, now=.true.)
    call varve_close(session)
    call check(c_finds(trim(store) // c_null_char) == 1, "C finds what Fortran saved")
  end subroutine
end module

program session_test
  use session_test_parts
  call get_command_argument(1, store)
  call check(store /= "", "there is a folder to work in")
  call check(varve_version_text() /= "", "the library has a version")
  call kinds_and_ranks_come_back()
  call an_older_step_is_chosen_and_rejected()
  call where_nothing_is_found_the_step_stays()
  call failures_say_what_happened()
  call c_and_fortran_read_each_other()
end program
