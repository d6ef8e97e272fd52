# Processes of multiprocessing, forked and new, call no MPI; the rank calls only MPI_Init and MPI_Finalize.
import multiprocessing


def work(queue):
    queue.put(7)


if __name__ == "__main__":
    from mpi4py import MPI

    for way in "fork", "spawn":
        context = multiprocessing.get_context(way)
        queue = context.SimpleQueue()
        process = context.Process(target=work, args=(queue,))
        process.start()
        assert queue.get() == 7
        process.join()
        assert process.exitcode == 0
