! The same calls through mpif.h, `use mpi` (USE_MPI) and `use mpi_f08` (USE_F08); the expectation is written to expected.PID,
! as in expect.h.
#if defined(USE_F08)
#define COMM type(MPI_Comm)
#define REQUEST type(MPI_Request)
#define DATATYPE type(MPI_Datatype)
#define WINDOW type(MPI_Win)
#define STATUS(name) type(MPI_Status) :: name
#define STATUSES(name, n) type(MPI_Status) :: name(n)
#define ERROR
#else
#define COMM integer
#define REQUEST integer
#define DATATYPE integer
#define WINDOW integer
#define STATUS(name) integer :: name(MPI_STATUS_SIZE)
#define STATUSES(name, n) integer :: name(MPI_STATUS_SIZE, n)
#define ERROR , ierror
#endif

module expectations
    implicit none
contains
    subroutine calls(function, group, count, bytes)
        character(*), intent(in) :: function
        integer, intent(in) :: group, count, bytes
        write (10, '(a, 1x, a, 3(1x, i0))') 'calls', function, group, count, bytes
    end subroutine
    subroutine messages(peer, count, bytes)
        integer, intent(in) :: peer, count, bytes
        write (10, '(a, 3(1x, i0))') 'messages', peer, count, count * bytes
    end subroutine
    subroutine operations(peer, count, bytes)
        integer, intent(in) :: peer, count, bytes
        write (10, '(a, 3(1x, i0))') 'operations', peer, count, count * bytes
    end subroutine
end module

program fortran
#if defined(USE_F08)
    use mpi_f08
#elif defined(USE_MPI)
    use mpi
#endif
    use expectations
    implicit none
#if !defined(USE_F08) && !defined(USE_MPI)
    include 'mpif.h'
#endif
    integer, parameter :: times = 4
    integer :: first = 1
    integer :: ierror, rank, size, left, right, i, k, place, number, me
    integer :: out(1000), in(1000), counts(16), displs(16), same(16), at(16), places(4)
    logical :: done
    character(32) :: name
    COMM :: part
    REQUEST :: requests(4)
    DATATYPE :: vector
    WINDOW :: window
    STATUS(status)
    STATUSES(statuses, 4)
    integer(MPI_ADDRESS_KIND) :: where

    write (name, '(a, i0)') 'expected.', getpid()
    open (10, file=name, status='replace')
    call MPI_Init(ierror)
    call calls('Init', 0, 1, 0)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, size, ierror)
    right = mod(rank + 1, size)
    left = mod(rank + size - 1, size)
    out = rank

    ! Blocking, with a status that the program reads.
    do i = 1, times
        if (rank == 0) call MPI_Send(out, 10, MPI_INTEGER, right, 3, MPI_COMM_WORLD ERROR)
        call MPI_Recv(in, 20, MPI_INTEGER, left, 3, MPI_COMM_WORLD, status, ierror)
        call MPI_Get_count(status, MPI_INTEGER, number, ierror)
        if (number /= 10) call MPI_Abort(MPI_COMM_WORLD, 3, ierror)
        if (rank /= 0) call MPI_Send(out, 10, MPI_INTEGER, right, 3, MPI_COMM_WORLD ERROR)
        call MPI_Sendrecv(out, 7, MPI_DOUBLE_PRECISION, right, 1, in, 7, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, &
                          MPI_STATUS_IGNORE, ierror)
    end do
    call calls('Send', 0, times, 40)
    call calls('Recv', 0, times, 80)
    call calls('Sendrecv', 0, times, 56)
    call messages(right, times, 40)
    call messages(right, times, 56)
    call MPI_Send(out, 9, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD ERROR)
    call calls('Send', 0, 1, 0)

    ! Indices count from 1, but from 0 in MPICH's mpi_f08 (4.0).
#if defined(USE_F08) && defined(LARGE)
    call MPI_Isend(out, 1, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, requests(1))
    call MPI_Waitany(1, requests(1:1), first, MPI_STATUS_IGNORE)
    call calls('Isend', 0, 1, 0)
    call calls('Waitany', 0, 1, 0)
#endif

    ! Nonblocking.
    do i = 1, times
        do k = 1, 2
            call MPI_Irecv(in(100 * k:), 8 * k, MPI_INTEGER, left, k, MPI_COMM_WORLD, requests(k), ierror)
            call MPI_Isend(out, 8, MPI_INTEGER, right, k, MPI_COMM_WORLD, requests(2 + k), ierror)
        end do
        call MPI_Wait(requests(4), MPI_STATUS_IGNORE, ierror)
        call MPI_Waitany(1, requests(3:3), place, status, ierror)
        if (place /= first) call MPI_Abort(MPI_COMM_WORLD, 4, ierror)
        call MPI_Waitsome(1, requests(1:1), number, places, MPI_STATUSES_IGNORE, ierror)
        if (number /= 1 .or. places(1) /= first) call MPI_Abort(MPI_COMM_WORLD, 5, ierror)
        call MPI_Waitall(4, requests, statuses, ierror)
        call MPI_Test(requests(1), done, status, ierror)
        if (.not. done) call MPI_Abort(MPI_COMM_WORLD, 6, ierror)
    end do
    call calls('Irecv', 0, times, 32)
    call calls('Irecv', 0, times, 64)
    call calls('Isend', 0, 2 * times, 32)
    call calls('Wait', 0, times, 32)
    call calls('Waitany', 0, times, 32)
    call calls('Waitsome', 0, times, 32)
    call calls('Waitall', 0, times, 64)
    call calls('Test', 0, times, 0)
    call messages(right, 2 * times, 32)

    ! Only the second of two requests in an array is complete.
    call MPI_Irecv(in, 5, MPI_INTEGER, left, 77, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Irecv(in, 6, MPI_INTEGER, MPI_PROC_NULL, 0, MPI_COMM_WORLD, requests(2), ierror)
    call MPI_Waitany(2, requests, place, MPI_STATUS_IGNORE, ierror)
    if (place /= first + 1) call MPI_Abort(MPI_COMM_WORLD, 7, ierror)
    ! All ranks have waited before any rank sends.
    call MPI_Barrier(MPI_COMM_WORLD ERROR)
    call calls('Barrier', size, 1, 0)
    call MPI_Send(out, 5, MPI_INTEGER, right, 77, MPI_COMM_WORLD ERROR)
    call MPI_Wait(requests(1), status, ierror)
    call calls('Irecv', 0, 1, 20)
    call calls('Irecv', 0, 1, 0)
    call calls('Waitany', 0, 1, 0)
    call calls('Send', 0, 1, 20)
    call calls('Wait', 0, 1, 20)
    call messages(right, 1, 20)

    ! Persistent.
    call MPI_Recv_init(in, 50, MPI_INTEGER, left, 9, MPI_COMM_WORLD, requests(1), ierror)
    call MPI_Send_init(out, 50, MPI_INTEGER, right, 9, MPI_COMM_WORLD, requests(2), ierror)
    do i = 1, times
        call MPI_Start(requests(1), ierror)
        call MPI_Start(requests(2), ierror)
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
        call MPI_Startall(2, requests, ierror)
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
    end do
    call MPI_Request_free(requests(1), ierror)
    call MPI_Request_free(requests(2), ierror)
    call calls('Recv_init', 0, 1, 200)
    call calls('Send_init', 0, 1, 200)
    call calls('Start', 0, 2 * times, 200)
    call calls('Startall', 0, times, 400)
    call calls('Waitall', 0, 2 * times, 400)
    call calls('Request_free', 0, 2, 0)
    call messages(right, 2 * times, 200)

    ! Collectives, also in place.
    do k = 1, size
        counts(k) = k
        displs(k) = k * (k - 1) / 2
        same(k) = rank + 1
        at(k) = (k - 1) * (rank + 1)
    end do
    do i = 1, times
        call MPI_Barrier(MPI_COMM_WORLD ERROR)
        call MPI_Bcast(out, 100, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
        call MPI_Allreduce(out, in, 11, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
        call MPI_Allreduce(MPI_IN_PLACE, in, 12, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
        call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, 13, MPI_INTEGER, MPI_COMM_WORLD, ierror)
        call MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, ierror)
        call MPI_Alltoallv(out, same, at, MPI_INTEGER, in, counts, displs, MPI_INTEGER, MPI_COMM_WORLD, ierror)
        call MPI_Reduce(out, in, 14, MPI_INTEGER, MPI_MAX, 0, MPI_COMM_WORLD, ierror)
        call MPI_Scatter(out, 3, MPI_INTEGER, in, 3, MPI_INTEGER, 0, MPI_COMM_WORLD, ierror)
        call MPI_Iallreduce(out, in, 15, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, requests(1), ierror)
        call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierror)
    end do
    call calls('Barrier', size, times, 0)
    call calls('Bcast', size, times, 400)
    call calls('Allreduce', size, times, 88)
    call calls('Allreduce', size, times, 48)
    call calls('Allgather', size, times, 52)
    call calls('Allgatherv', size, times, 4 * (rank + 1))
    call calls('Alltoallv', size, times, 4 * size * (rank + 1))
    call calls('Reduce', size, times, 56)
    if (rank == 0) call calls('Scatter', size, times, 12 * size)
    if (rank /= 0) call calls('Scatter', size, times, 12)
    call calls('Iallreduce', size, times, 60)
    call calls('Wait', 0, times, 60)

    ! A communicator with reversed ranks; peers are counted by world rank.
    call MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, part, ierror)
    call MPI_Comm_rank(part, me, ierror)
    do i = 1, times
        call MPI_Sendrecv(out, 4, MPI_INTEGER, mod(me + 1, size), 0, in, 4, MPI_INTEGER, mod(me + size - 1, size), 0, part, &
                          MPI_STATUS_IGNORE, ierror)
    end do
    call MPI_Comm_free(part, ierror)
    call calls('Comm_split', 0, 1, 0)
    call calls('Sendrecv', 0, times, 16)
    call calls('Comm_free', 0, 1, 0)
    call messages(left, times, 16)

    ! Types of other sizes with reused handles.
    do k = 1, 10
        call MPI_Type_vector(k, 2, 5, MPI_INTEGER, vector, ierror)
        call MPI_Type_commit(vector, ierror)
        call MPI_Sendrecv(out, 1, vector, right, 0, in, 1, vector, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
        call MPI_Type_free(vector, ierror)
        call calls('Sendrecv', 0, 1, 8 * k)
        call messages(right, 1, 8 * k)
    end do

    ! One-sided.
    where = 4000
    call MPI_Win_create(in, where, 4, MPI_INFO_NULL, MPI_COMM_WORLD, window, ierror)
    where = 0
    do i = 1, times
        call MPI_Win_fence(0, window, ierror)
        call MPI_Put(out, 6, MPI_INTEGER, right, where, 6, MPI_INTEGER, window, ierror)
        call MPI_Win_fence(0, window, ierror)
    end do
    call MPI_Win_free(window, ierror)
    call calls('Win_create', 0, 1, 0)
    call calls('Win_fence', 0, 2 * times, 0)
    call calls('Put', 0, times, 24)
    call calls('Win_free', 0, 1, 0)
    call operations(right, times, 24)

#if defined(USE_F08)
    ! Every second element, which may be passed as a descriptor.
    if (MPI_SUBARRAYS_SUPPORTED) then
        call MPI_Isend(out(1:99:2), 50, MPI_INTEGER, right, 5, MPI_COMM_WORLD, requests(1))
        call MPI_Recv(in(1:199:4), 50, MPI_INTEGER, left, 5, MPI_COMM_WORLD, status)
        call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
        call calls('Isend', 0, 1, 200)
        call calls('Recv', 0, 1, 200)
        call calls('Wait', 0, 1, 200)
        call messages(right, 1, 200)
    end if
#if defined(LARGE)
    ! Counts of 64 bits.
    call MPI_Sendrecv(out, int(21, MPI_COUNT_KIND), MPI_INTEGER, right, 6, in, int(21, MPI_COUNT_KIND), MPI_INTEGER, left, 6, &
                      MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Allreduce(MPI_IN_PLACE, in, int(22, MPI_COUNT_KIND), MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call calls('Sendrecv', 0, 1, 84)
    call calls('Allreduce', size, 1, 88)
    call messages(right, 1, 84)
#endif
#endif
    call MPI_Pcontrol(5)
    call MPI_Finalize(ierror)
    call calls('Finalize', 0, 1, 0)
    close (10)
end program
