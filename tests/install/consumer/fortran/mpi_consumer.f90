program mpi_consumer
  use mpi_f08
  use varve_mpi_f08
  implicit none
  type(varve_session) :: session
  real, target :: t(10, 10)
  character(4096) :: store
  call MPI_Init()
  call get_command_argument(1, store)
  t = 1
  call varve_open(session, MPI_COMM_WORLD, store=store, job="consumer")
  call varve_protect(session, "t", t)
  call varve_checkpoint(session, 1, now=.true.)
  call varve_close(session)
  call MPI_Finalize()
end program
