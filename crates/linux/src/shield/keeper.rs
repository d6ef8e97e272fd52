//! A process that undoes a shield when its owner is killed.

use std::io;

use machine::{CpuSet, Result};

use super::group::Group;
use crate::warden::Warden;

/// Reads lines `THREAD START CORES`, masks to restore, from standard input until the owner ends in any way. Then it
/// moves the threads of the groups back to `$parent`, removes the groups, disables the controller in the `$given`
/// groups from `$parent` upwards, and restores the masks of threads that are still the same. Debian always has
/// `taskset` (util-linux); without it masks are left to the kernel, which restores them since Linux 6.2.
const SCRIPT: &str = r#"
masks=$(cat)
parent=$1 file=$2 given=$3
shift 3
for group; do
    tries=0
    while [ -d "$group" ] && [ $tries -lt 200 ]; do
        while read -r thread; do
            echo "$thread" >"$parent/$file"
        done <"$group/$file"
        rmdir "$group" || sleep 0.05
        tries=$((tries + 1))
    done
done
above=$parent
while [ "$given" -gt 0 ]; do
    echo -cpuset >"$above/cgroup.subtree_control" || break
    above=${above%/*} given=$((given - 1))
done
echo "$masks" | while read -r thread start cores; do
    read -r stat <"/proc/$thread/stat" || continue
    set -- ${stat##*) }
    [ "${20}" = "$start" ] && taskset -cp "$cores" "$thread"
done
"#;

pub(super) struct Keeper(Option<Warden>);

impl Keeper {
    /// Starts the keeper, before the first of the groups is made.
    pub fn start(parent: &Group, groups: [&Group; 2], given: usize) -> Result<Keeper> {
        let given = given.to_string();
        let [own, rest] = groups.map(|group| group.path.as_os_str());
        let arguments = [parent.path.as_os_str(), parent.threads_file().as_ref(), given.as_ref(), own, rest];
        Warden::by_script(SCRIPT, arguments).map(|warden| Keeper(Some(warden)))
    }

    pub fn remember(&mut self, thread: i32, start: u64, mask: &CpuSet) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), |warden| warden.tell(format!("{thread} {start} {mask}\n").as_bytes()))
    }

    /// Ends the keeper, as the owner has undone all by itself.
    pub fn dismiss(&mut self) {
        if let Some(warden) = self.0.take() {
            warden.dismiss();
        }
    }
}
