use super::*;

#[test]
fn cases_run_and_their_seed_repeats_them() {
    let (mut balanced, mut names) = (0, std::collections::BTreeSet::new());
    for seed in 0..60 {
        let case = Case::of(seed).unwrap();
        let finished = case.record().unwrap().finished;
        assert_eq!(finished, Case::of(seed).unwrap().record().unwrap().finished, "seed {seed}");
        assert_eq!(finished.sent, finished.received);
        balanced += u32::from(case.balanced);
        if case.balanced {
            assert_eq!(case.best().unwrap().1, finished.total(), "seed {seed}");
        }
        names.insert(case.name);
    }
    assert!(balanced > 3 && balanced < 30 && names.len() > 40, "{balanced} balanced, {names:?}");
}

#[test]
fn mappings_are_those_that_can_be_told_apart() {
    let count = |cores: u32, place| {
        let mut case = Case::of(0).unwrap();
        let core = |id: u32| Core { id: CoreId(id), package: id % 2, dilation: 1.0 };
        case.cluster.hosts.iter_mut().for_each(|host| host.cores = (0..cores).map(core).collect());
        case.cluster.seats = vec![Seat { host: 0, core: 0 }; 2 * cores as usize];
        case.cluster.profile = Profile { place, acknowledge: Cost::default(), ..case.cluster.profile };
        mappings(&case.cluster).len()
    };
    // Equal hosts; of four cores two are on the other socket.
    assert_eq!([2, 3, 4].map(|cores| count(cores, Place::Softirq)), [24 / 2, 720 / 2, 40_320 / 8]);
    // Mappings differ only in which ranks share a host.
    assert_eq!([2, 3, 4].map(|cores| count(cores, Place::Device)), [6 / 2, 20 / 2, 70 / 2]);
}

/// For any seats of the ranks, one of the mappings that are tried takes the same time.
#[test]
fn each_mapping_has_the_time_of_one_that_is_tried() {
    let small = |case: &Case| case.cluster.seats.len() == 4;
    for case in (0..).map_while(|seed| Case::of(seed).ok()).filter(small).take(4) {
        let tried: Vec<Time> = mappings(&case.cluster).iter().map(|seats| case.time(seats).unwrap()).collect();
        let mut random = Random::new(3);
        let mut seats = case.cluster.seats.clone();
        for _ in 0..10 {
            random.shuffle(&mut seats);
            let time = case.time(&seats).unwrap();
            assert!(tried.contains(&time), "{}: {seats:?} {time} {tried:?}", case.name);
        }
        assert_eq!(case.best().unwrap().1, *tried.iter().min().unwrap());
    }
}
