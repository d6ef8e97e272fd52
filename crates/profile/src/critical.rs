//! The critical path in a profile's figures. Who has a model of what messages cost walks it, and puts it there.

use std::collections::BTreeMap;

use timeline::places::Places;

use crate::sites;
use crate::summary::{Critical, OnPath, Summary};

impl Summary {
    /// `on_path`: what of the path is at each of `places` that it comes by.
    pub fn put_critical(&mut self, critical: Critical, places: &Places, on_path: &BTreeMap<u32, OnPath>) {
        if !on_path.is_empty() {
            self.sites.iter_mut().for_each(|site| site.critical = Some(OnPath::default()));
        }
        let among = sites::among(places, &self.sites);
        for (place, of) in on_path {
            if let Some(site) = among.get(*place as usize).copied().flatten() {
                self.sites[site].critical = Some(of.clone());
            }
        }
        self.critical = Some(critical);
    }
}
