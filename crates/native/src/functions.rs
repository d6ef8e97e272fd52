//! The functions of a library's table, checked to be there.

use std::ffi::c_void;

use crate::table::{Host, OnChannel, Restore, Sink, Slice, Step, Table, Timer};

/// Bytes of a table that has all functions of this version's first form.
pub(crate) const LEAST: usize = std::mem::offset_of!(Table, stop) + size_of::<usize>();

/// A table whose functions are there.
pub(crate) struct Functions {
    pub manifest: unsafe extern "C" fn(Sink<'_>),
    pub script: unsafe extern "C" fn(Sink<'_>),
    pub new: unsafe extern "C" fn(Sink<'_>) -> *mut c_void,
    pub delete: unsafe extern "C" fn(*mut c_void),
    pub initialize: Step,
    pub start: Step,
    pub call: unsafe extern "C" fn(*mut c_void, Host<'_>, u64, u32, Slice<'_>, Sink<'_>) -> u32,
    pub answered: unsafe extern "C" fn(*mut c_void, Host<'_>, u32, u32, u32, Slice<'_>, Sink<'_>) -> u32,
    pub attached: OnChannel,
    pub message: OnChannel,
    pub turn: Step,
    pub attribute_set: unsafe extern "C" fn(*mut c_void, Host<'_>, Slice<'_>, Slice<'_>, Sink<'_>) -> u32,
    pub stop: Step,
    pub save: Option<Step>,
    pub restore: Option<Restore>,
    pub timer: Option<Timer>,
}

impl Functions {
    pub fn of(table: &Table) -> Option<Functions> {
        Some(Functions {
            manifest: table.manifest?,
            script: table.script?,
            new: table.new?,
            delete: table.delete?,
            initialize: table.initialize?,
            start: table.start?,
            call: table.call?,
            answered: table.answered?,
            attached: table.attached?,
            message: table.message?,
            turn: table.turn?,
            attribute_set: table.attribute_set?,
            stop: table.stop?,
            save: table.save,
            restore: table.restore,
            timer: table.timer,
        })
    }
}
