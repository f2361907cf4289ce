program consumer
  use varve
  implicit none
  type(varve_session) :: session
  real, target :: t(10, 10)
  character(4096) :: store
  call get_command_argument(1, store)
  t = 1
  call varve_open(session, store=store, job="consumer")
  call varve_protect(session, "t", t)
  call varve_checkpoint(session, 1, now=.true.)
  call varve_close(session)
end program
