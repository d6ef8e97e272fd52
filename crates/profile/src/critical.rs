//! The critical path in a profile's figures. The caller has the model of message costs and computes the path.

use std::collections::BTreeMap;

use timeline::places::Places;

use crate::sites;
use crate::summary::{Critical, OnPath, Summary};

impl Summary {
    /// `on_path`: the part of the path at each place that it passes, by the place's number in `places`.
    pub fn put_critical(&mut self, critical: Critical, places: &Places, on_path: &BTreeMap<u32, OnPath>) {
        if !on_path.is_empty() {
            self.sites.iter_mut().for_each(|site| site.critical = Some(OnPath::default()));
        }
        let among = sites::summary_index_of_places(places, &self.sites);
        for (place, of) in on_path {
            if let Some(site) = among.get(*place as usize).copied().flatten() {
                self.sites[site].critical = Some(of.clone());
            }
        }
        self.critical = Some(critical);
    }
}
