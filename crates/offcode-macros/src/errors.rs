//! A list of all errors of one item, so that its author sees them at once.

use proc_macro2::Span;
use syn::Error;

#[derive(Default)]
pub struct Errors(Vec<Error>);

impl Errors {
    pub fn refuse(&mut self, span: Span, why: impl std::fmt::Display) {
        self.0.push(Error::new(span, why));
    }

    pub fn add(&mut self, error: Error) {
        self.0.push(error);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn together(self) -> Option<Error> {
        self.0.into_iter().reduce(|mut all, error| {
            all.combine(error);
            all
        })
    }
}
