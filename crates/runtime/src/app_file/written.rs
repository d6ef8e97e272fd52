//! The file as it is written. What a mistake can be in knows its place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use offcode::channel::{Cast, Content, Delivery, Policy, Synchronization};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub name: Spanned<String>,
    #[serde(default)]
    pub depots: Vec<PathBuf>,
    pub sites: Spanned<Sites>,
    #[serde(default)]
    pub offcode: Vec<Offcode>,
    #[serde(default)]
    pub channel: Vec<Channel>,
    #[serde(default)]
    pub agents: BTreeMap<Spanned<String>, Agent>,
    #[serde(default)]
    pub capacities: BTreeMap<Spanned<String>, Capacity>,
    pub duration: Option<Spanned<String>>,
    pub count: Option<Spanned<u64>>,
    pub objective: Option<Spanned<String>>,
}

pub enum Sites {
    Word(String),
    List(Vec<Spanned<String>>),
}

/// By hand: what is derived for enumerations without tags loses the places.
impl<'de> Deserialize<'de> for Sites {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Sites;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\" or a list of sites")
            }

            fn visit_str<E>(self, word: &str) -> Result<Sites, E> {
                Ok(Sites::Word(word.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Sites, A::Error> {
                let mut sites = Vec::new();
                while let Some(site) = list.next_element()? {
                    sites.push(site);
                }
                Ok(Sites::List(sites))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offcode {
    pub create: Spanned<String>,
    #[serde(rename = "as")]
    pub instance: Option<Spanned<String>>,
    pub version: Option<Spanned<String>>,
    #[serde(default)]
    pub peers: BTreeMap<String, Spanned<String>>,
    pub at: Option<Spanned<String>>,
    #[serde(default)]
    pub rate: u64,
    #[serde(default)]
    pub attributes: BTreeMap<String, Spanned<Value>>,
}

/// An attribute's value: text, however it is written.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Value {
    Text(String),
    Integer(i64),
    Real(f64),
    Truth(bool),
}

impl Value {
    pub fn text(&self) -> String {
        match self {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => number.to_string(),
            Value::Truth(truth) => truth.to_string(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Channel {
    pub name: Spanned<String>,
    pub from: Spanned<String>,
    pub to: Spanned<Vec<Spanned<String>>>,
    #[serde(default)]
    pub rate: u64,
    pub cast: Option<Cast>,
    pub delivery: Option<Delivery>,
    pub synchronization: Option<Synchronization>,
    pub content: Option<Content>,
    pub buffers: Option<Spanned<u32>>,
    pub buffer_size: Option<Spanned<String>>,
    pub policy: Option<Policy>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    pub address: Spanned<String>,
    pub keys: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    pub load: Option<Spanned<f64>>,
    pub memory: Option<Spanned<String>>,
    pub offcodes: Option<usize>,
}
