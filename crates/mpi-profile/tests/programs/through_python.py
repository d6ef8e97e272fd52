# mpi4py loads MPI outside the global scope. The expectations have the format of expect.h.
import os

expected = open(f"expected.{os.getpid()}", "w")


def calls(function, group, count, size):
    expected.write(f"calls {function} {group} {count} {size}\n")


import numpy
from mpi4py import MPI

calls("Init_thread", 0, 1, 0)
world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
right, left = (rank + 1) % size, (rank - 1) % size
out, into = numpy.zeros(100, "d"), numpy.zeros(100, "d")

for i in range(20):
    world.Sendrecv([out, 50, MPI.DOUBLE], right, 0, [into, 50, MPI.DOUBLE], left, 0)
    request = world.Irecv([into, 10, MPI.DOUBLE], left, 1)
    world.Send([out, 10, MPI.DOUBLE], right, 1)
    request.Wait()
    world.Allreduce(MPI.IN_PLACE, [into, 7, MPI.DOUBLE], MPI.SUM)
    world.Bcast([out, 100, MPI.DOUBLE], 0)
calls("Sendrecv", 0, 20, 400)
calls("Irecv", 0, 20, 80)
calls("Send", 0, 20, 80)
calls("Wait", 0, 20, 80)
calls("Allreduce", size, 20, 56)
calls("Bcast", size, 20, 800)
expected.write(f"messages {right} 20 {20 * 400}\nmessages {right} 20 {20 * 80}\n")

# Arrays of counts, for which mpi4py calls large-count functions where it finds them.
ones, where = numpy.full(size, 2), numpy.arange(size) * 2
for i in range(3):
    world.Alltoallv([out, (ones, where), MPI.DOUBLE], [into, (ones, where), MPI.DOUBLE])
    out[:] = numpy.arange(100)
    world.Allgatherv([out, 2, MPI.DOUBLE], [into, (ones, where), MPI.DOUBLE])
    assert all(into[2 * peer : 2 * peer + 2].tolist() == [0.0, 1.0] for peer in range(size))
    request = world.Ialltoallv([out, (ones, where), MPI.DOUBLE], [into, (ones, where), MPI.DOUBLE])
    request.Wait()
    assert into[0] == 2 * rank
    world.Scatterv([out, (ones, where), MPI.DOUBLE] if rank == 0 else None, [into, 2, MPI.DOUBLE], 0)
    assert into[0] == 2 * rank
calls("Alltoallv", size, 3, 16 * size)
calls("Allgatherv", size, 3, 16)
calls("Ialltoallv", size, 3, 16 * size)
calls("Wait", 0, 3, 16 * size)
calls("Scatterv", size, 3, 16 * size if rank == 0 else 16)

part = world.Split(0, -rank)
part.Barrier()
part.Sendrecv([out, 3, MPI.DOUBLE], (part.Get_rank() + 1) % size, 0, [into, 3, MPI.DOUBLE], MPI.ANY_SOURCE, 0)
part.Free()
calls("Comm_split", 0, 1, 0)
calls("Barrier", size, 1, 0)
calls("Sendrecv", 0, 1, 24)
calls("Comm_free", 0, 1, 0)
expected.write(f"messages {left} 1 24\n")
# MPI_Finalize comes at the interpreter's end.
calls("Finalize", 0, 1, 0)
expected.close()
