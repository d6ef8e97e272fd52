//! The shares of cores that ranks can have, as a page of text.

use chart::number;
use machine::capability::CapabilityMap;
use machine::count;
use profile::terminal::capability;

/// The page of a map that was taken over `seconds`.
pub fn page(map: &CapabilityMap, seconds: f64, width: usize) -> String {
    let cores = count::of(map.cores.len() as u64, "core");
    let fastest = map.fastest.value().map(|clock| format!("; 100 % of the clock are {clock}")).unwrap_or_default();
    let (table, remarks) = capability::table(&map.cores);
    let mut page = format!("{cores} over {} s{fastest}\n\n", number::digits(seconds));
    page += &table.text(width);
    for host in &map.silent {
        page += &format!("{}  not looked at: {}\n", host.host, host.reason);
    }
    if !remarks.is_empty() {
        page.push('\n');
    }
    remarks.iter().for_each(|remark| page += &format!("- {remark}\n"));
    page
}
