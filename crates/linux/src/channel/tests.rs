use offcode::channel::conformance::{self, Bench};

use super::*;

/// Both ends in one process.
struct Threads;

impl Bench for Threads {
    fn unicast(&mut self, specification: &Specification) -> Option<(conformance::Endpoint, conformance::Endpoint)> {
        let (one, other) = unicast(specification).unwrap();
        Some((Box::new(one), Box::new(other)))
    }

    fn multicast(
        &mut self,
        specification: &Specification,
        readers: usize,
    ) -> Option<(conformance::Endpoint, Vec<conformance::Endpoint>)> {
        let (writer, readers) = multicast(specification, readers).unwrap();
        Some((Box::new(writer), readers.into_iter().map(|reader| Box::new(reader) as _).collect()))
    }
}

#[test]
fn channels_between_threads_conform() {
    conformance::all(&mut Threads);
}
