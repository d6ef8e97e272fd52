//! Tests of `manual` through its interface, a module for each subject.
#![forbid(unsafe_code)]

mod pages;
#[allow(dead_code)]
#[path = "../src/sections.rs"]
mod sections;

mod build;
mod documents;
mod features;
mod grammar;
mod licences;
mod links;
mod package;
mod recipes;
mod versions;
