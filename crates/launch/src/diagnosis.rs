//! Likely causes of a job without reports, the most certain first.

use machine::count;

use crate::family::Family;
use crate::installation::Installation;
use crate::transports;

/// Facts on a job without reports.
pub struct Silence<'a> {
    pub installation: &'a Installation,
    /// The user's own options for the launcher.
    pub options: &'a [String],
    /// The launcher's exit code.
    pub code: u8,
    /// Report lines that could not be read.
    pub damaged: usize,
}

/// Parameters by which a user of Open MPI chooses the transport.
const CHOOSING: [&str; 4] = ["pml", "mtl", "btl", "mtl_ofi_provider_include"];

impl Silence<'_> {
    /// The option by which the user chose another transport.
    fn chosen(&self) -> Option<String> {
        let mut all = self.options.windows(3);
        let found = all.find(|words| {
            matches!(words[0].as_str(), "--mca" | "-mca" | "--gmca" | "-gmca") && CHOOSING.contains(&words[1].as_str())
        });
        found.map(|words| words.join(" "))
    }

    /// Whether the messages surely did not use the engine. Ranks that end early report no more than ranks that never used
    /// the provider.
    pub fn is_telling(&self) -> bool {
        let is_other = transports::without_libfabric(self.installation).is_some() || self.chosen().is_some();
        is_other || (self.code == 0 && self.damaged == 0)
    }
}

/// Causes, each with the next step.
pub fn of(silence: &Silence) -> Vec<String> {
    let Silence { installation, code, damaged, .. } = silence;
    let mut causes = Vec::new();
    if *damaged > 0 {
        causes.push(format!(
            "{} came mixed or cut. Next: leave options that tag or merge output out of --mpirun-args",
            count::of(*damaged as u64, "report line")
        ));
    }
    if let Some(why) = transports::without_libfabric(installation) {
        let next = installation.family.to_get_libfabric();
        causes.push(format!("{why}. Next: {next}"));
    }
    if let Some(words) = silence.chosen() {
        causes.push(format!("'{words}' of --mpirun-args chooses another transport. Next: leave it out"));
    }
    // Exit codes from 129 to 192 are of signals, which need no cause.
    if matches!(*code, 1..=128 | 193..) {
        causes.push("ranks report in MPI_Finalize, which they did not reach. Next: see what it said above".to_owned());
    }
    if causes.is_empty() && *code == 0 {
        let watch = match installation.family {
            Family::OpenMpi => "--mpirun-args '--mca mtl_base_verbose 100 --mca pml_base_verbose 100'",
            Family::Mpich => "MPIR_CVAR_DEBUG_SUMMARY=1",
            Family::IntelMpi => "I_MPI_DEBUG=5",
        };
        causes.push(format!(
            "the program did not end MPI by MPI_Finalize, or this {installation} did not take the provider. \
             Next: see what it takes with {watch}, and what libfabric says with FI_LOG_LEVEL=info"
        ));
    }
    causes
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn causes(family: Family, device: Option<&str>, options: &[&str], code: u8, damaged: usize) -> Vec<String> {
        judged(family, device, options, code, damaged).1
    }

    /// [`Silence::is_telling`] and the causes.
    fn judged(family: Family, device: Option<&str>, options: &[&str], code: u8, damaged: usize) -> (bool, Vec<String>) {
        let installation = Installation {
            family,
            version: "4.0.2".into(),
            launcher: PathBuf::from("/nowhere/mpirun"),
            device: device.map(str::to_owned),
            libraries: None,
        };
        let options: Vec<String> = options.iter().map(|&word| word.to_owned()).collect();
        let silence = Silence { installation: &installation, options: &options, code, damaged };
        (silence.is_telling(), of(&silence))
    }

    #[test]
    fn a_job_that_ended_early_may_have_been_carried() {
        let (ofi, other) = (Some("ch4:ofi"), ["--mca", "pml", "ob1"]);
        let is_telling = |device, options: &[&str], code, damaged| {
            let (is_telling, causes) = judged(Family::Mpich, device, options, code, damaged);
            assert!(causes.iter().all(|cause| cause.contains("Next: ")), "{causes:?}");
            is_telling
        };
        assert!(is_telling(ofi, &[], 0, 0));
        assert!(!is_telling(ofi, &[], 130, 0) && !is_telling(ofi, &[], 7, 0) && !is_telling(ofi, &[], 0, 2));
        assert!(is_telling(Some("ch4:ucx"), &[], 130, 0) && is_telling(ofi, &other, 7, 0));
        assert!(causes(Family::Mpich, ofi, &[], 130, 0).is_empty());
    }

    #[test]
    fn the_cause_is_named_where_it_is_known() {
        let causes_of = |device, options: &[&str], code| causes(Family::Mpich, device, options, code, 0);
        assert!(causes_of(Some("ch4:ucx"), &[], 0)[0].contains("built without libfabric (--with-device=ch4:ucx)"));
        assert!(causes_of(Some("ch4:ofi"), &[], 0)[0].contains("did not take the provider"));
        assert!(causes_of(Some("ch4:ofi"), &[], 13)[0].contains("MPI_Finalize, which they did not reach"));
        let forced = causes(Family::OpenMpi, None, &["--map-by", "core", "--mca", "pml", "ob1"], 0, 0);
        assert_eq!(forced, ["'--mca pml ob1' of --mpirun-args chooses another transport. Next: leave it out"]);
        assert!(causes(Family::OpenMpi, None, &["--tag-output"], 0, 2)[0].starts_with("2 report lines"));
    }
}
