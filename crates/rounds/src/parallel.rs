//! Work distributed over the cores.

use machine::Result;

/// The results of `work` for each of `all`, on all cores.
///
/// # Errors
/// The first error of `work`.
pub fn in_parallel<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let each = all.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = all
            .chunks(each)
            .map(|part| scope.spawn(move || part.iter().map(work).collect::<Result<Vec<R>>>()))
            .collect();
        let mut done = Vec::with_capacity(all.len());
        for part in parts {
            done.extend(part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(done)
    })
}
