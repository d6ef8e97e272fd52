//! Attributes that offcodes refuse: at the start, while they run, and where they move.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use machine::{CoreId, Fault, Result, Site};
use offcode::{Context, Lifecycle, OFFLOAD_PRIORITY, Registry, interface, offcode};
use runtime::site::SiteDriver;
use runtime::site::app::AppSite;
use runtime::site::residents::Residents;
use runtime::{Catalogue, Runtime, Wanted};

#[interface(guid = "2f6c9e0a-7a7a-4b25-9c11-6ad3c0de0001")]
trait Level {
    fn level(&self) -> u32;
}

/// Takes the levels that it can have at the moment.
#[offcode(guid = "2f6c9e0a-7a7a-4b25-9c11-6ad3c0de0011", name = "test.picky", version = "1.0.0", implements(Level),
          sites(app, core), attributes(level = 3), state = none)]
#[derive(Default)]
struct Picky {
    level: u32,
}

static TAKES_NONE: AtomicBool = AtomicBool::new(false);

impl Level for Picky {
    fn level(&self) -> u32 {
        self.level
    }
}

impl Lifecycle for Picky {
    fn attribute_set(&mut self, name: &str, value: &str, context: &mut dyn Context) -> Result<()> {
        assert_eq!(context.attribute(name), Some(value));
        assert_ne!(name, OFFLOAD_PRIORITY, "which only the runtime has set");
        let refused = |cause: &str| Err(Fault::new(format!("level '{value}'"), cause, "try a lower one"));
        match value.parse() {
            _ if TAKES_NONE.load(Ordering::Relaxed) => refused("none is taken now"),
            Ok(level @ 0..10) => {
                self.level = level;
                Ok(())
            }
            Ok(_) => refused("it is too high"),
            Err(_) => refused("it is no number"),
        }
    }
}

#[test]
fn what_an_offcode_refuses_leaves_it_as_it_was() {
    let sites = [Site::App, Site::Core(CoreId(0))].map(|site| -> Box<dyn SiteDriver> {
        Box::new(AppSite::new(Residents::new(site, Instant::now(), Arc::new(|_| {}))))
    });
    let catalogue = Catalogue::new(Registry::new().with::<Picky>(), Vec::new()).unwrap();
    let mut runtime = Runtime::new(catalogue, sites.into(), Arc::new(|_| {})).unwrap();

    let wanted = Wanted::new("test.picky").at(Site::App);
    let places = vec![("level".to_owned(), "pets.toml:4:9".to_owned())];
    let said = runtime.create_offcode(&Wanted { places, ..wanted.clone() }.with("level", 10)).unwrap_err().to_string();
    for part in ["test.picky at app", "setting level (pets.toml:4:9)", "it is too high", "Next: try a lower one"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(runtime.status().is_empty(), "it was taken back");

    let picky = runtime.create_offcode(&wanted).unwrap();
    let level = |runtime: &mut Runtime| runtime.invoke(picky, &LevelProxy.level()).unwrap();
    assert_eq!(level(&mut runtime), 3, "it was told of its manifest's");
    assert_eq!(runtime.set_attribute(picky, "level", "7").unwrap().as_deref(), Some("3"));
    let said = runtime.set_attribute(picky, "level", "eleven").unwrap_err().to_string();
    assert!(said.contains("offcode test.picky: level 'eleven': it is no number"), "{said}");
    assert_eq!((level(&mut runtime), runtime.attribute(picky, "level").unwrap()), (7, Some("7")));
    assert!(runtime.status()[0].attributes.contains(&("level".into(), "7".into())));

    // A new body refuses what the old one took: the move is taken back.
    TAKES_NONE.store(true, Ordering::Relaxed);
    let said = runtime.migrate(picky, &Site::Core(CoreId(0))).unwrap_err().to_string();
    assert!(said.contains("none is taken now; everything is as it was"), "{said}");
    assert_eq!((level(&mut runtime), runtime.site_of(picky).unwrap()), (7, &Site::App));
    TAKES_NONE.store(false, Ordering::Relaxed);
    runtime.migrate(picky, &Site::Core(CoreId(0))).unwrap();
    assert_eq!(level(&mut runtime), 7, "the new body was told");
}
