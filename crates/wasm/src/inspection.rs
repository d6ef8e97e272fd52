//! Checks of a module before any time is spent on compiling it.

use machine::{Bytes, Fault, Result};
use offcode::abi;
use wasmparser::{ExternalKind, FuncType, Parser, Payload, TypeRef};

use crate::limits::Limits;

/// Most parameters and results of one type. A call, a block or a loop names its type in a few bytes, and takes as long
/// to compile as that has values.
const VALUES: usize = 32;

fn guide() -> String {
    format!("{} says how an offcode is written", machine::page("docs/wasm-abi.md"))
}

/// The memory that an instance begins with. A fault unless the module imports nothing, exports what the host calls and
/// keeps to the limits.
pub fn inspect(bytes: &[u8], limits: &Limits) -> Result<Bytes> {
    let fault = |cause: String, next: &str| Err(Fault::new("wasm module", cause, next));
    if bytes.len() as u64 > limits.module.0 {
        let size = Bytes(bytes.len() as u64);
        let next = "build it with opt-level = \"s\", lto and panic = \"abort\", or strip its debug sections";
        return fault(format!("its {size} are more than the limit of {}", limits.module), next);
    }
    let mut found = Found::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let read = payload.and_then(|payload| found.take(payload, limits));
        if let Err(error) = read {
            return fault(format!("it does not parse: {error}"), "give a core module (not a component, not text)");
        }
        if let Some(problem) = found.problem.take() {
            return Err(problem);
        }
    }
    if !found.imports.is_empty() {
        let next = format!("offcodes act only through their output area and import nothing; {}", guide());
        return fault(format!("it imports {}", found.imports.join(", ")), &next);
    }
    if found.memory.is_none() {
        return fault("it exports no memory named 'memory'".into(), &guide());
    }
    for (name, parameters) in [(abi::DESCRIBE, 0), (abi::HANDLE, 1)] {
        let Some(&index) = found.exported.iter().find(|(export, _)| export == name).map(|(_, index)| index) else {
            return fault(format!("it exports no function {name}"), &guide());
        };
        let i32s = |types: &[wasmparser::ValType]| types.iter().all(|t| *t == wasmparser::ValType::I32);
        let right = found.signature(index).is_some_and(|signature| {
            signature.params().len() == parameters
                && signature.results().len() == 1
                && i32s(signature.params())
                && i32s(signature.results())
        });
        if !right {
            return fault(format!("its {name} does not take {parameters} i32 and return one i32"), &guide());
        }
    }
    Ok(found.initial)
}

#[derive(Default)]
struct Found {
    imports: Vec<String>,
    types: Vec<Option<FuncType>>,
    /// Type of each function.
    functions: Vec<u32>,
    exported: Vec<(String, u32)>,
    memory: Option<u32>,
    initial: Bytes,
    /// Bytes of all functions, each local variable counted as a byte.
    code: u64,
    problem: Option<Fault>,
}

impl Found {
    fn take(&mut self, payload: Payload<'_>, limits: &Limits) -> wasmparser::Result<()> {
        match payload {
            Payload::Version { encoding: wasmparser::Encoding::Component, .. } => {
                self.problem = Some(Fault::new("wasm module", "it is a component", "give a core module"));
            }
            Payload::TypeSection(types) => {
                for group in types {
                    for sub in group?.into_types() {
                        let function = match sub.composite_type.inner {
                            wasmparser::CompositeInnerType::Func(function) => Some(function),
                            _ => None,
                        };
                        let values = function.as_ref().map_or(0, |of| of.params().len() + of.results().len());
                        if values > VALUES {
                            self.problem = Some(Fault::new(
                                "wasm module",
                                format!("a type has {values} parameters and results, the limit is {VALUES}"),
                                "pass the address of a structure",
                            ));
                        }
                        self.types.push(function);
                    }
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    let import = import?;
                    let kind = match import.ty {
                        TypeRef::Func(_) | TypeRef::FuncExact(_) => "function",
                        TypeRef::Memory(_) => "memory",
                        TypeRef::Table(_) => "table",
                        TypeRef::Global(_) => "global",
                        TypeRef::Tag(_) => "tag",
                    };
                    // Names come from outside and may be long and many.
                    if self.imports.len() < 8 {
                        let short = |name: &str| name.chars().take(64).collect::<String>().escape_debug().to_string();
                        self.imports.push(format!("{kind} {}.{}", short(import.module), short(import.name)));
                    }
                }
            }
            Payload::FunctionSection(functions) => {
                for function in functions {
                    self.functions.push(function?);
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let bytes = memory?.initial.saturating_mul(64 << 10);
                    self.initial = Bytes(bytes);
                    if bytes > limits.memory.0 {
                        self.problem = Some(Fault::new(
                            "wasm module",
                            format!("it starts with {} of memory, the limit is {}", Bytes(bytes), limits.memory),
                            "link it with a smaller stack (-z stack-size) or smaller static data",
                        ));
                    }
                }
            }
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export?;
                    match export.kind {
                        ExternalKind::Func => self.exported.push((export.name.into(), export.index)),
                        ExternalKind::Memory if export.name == "memory" => self.memory = Some(export.index),
                        _ => {}
                    }
                }
            }
            Payload::CodeSectionEntry(body) => {
                let range = body.range();
                let mut size = (range.end - range.start) as u64;
                // A few bytes declare any number of variables, each of which is compiled.
                for locals in body.get_locals_reader()? {
                    size = size.saturating_add(locals?.0.into());
                }
                self.code = self.code.saturating_add(size);
                let (what, size, limit, next) = match self.code > limits.module.0 {
                    true => ("it", self.code, limits.module, "leave variables out that are not used"),
                    false => {
                        let next = "split the function, or keep the compiler from inlining so much";
                        ("a function", size, limits.function, next)
                    }
                };
                if size > limit.0 {
                    let size = Bytes(size);
                    let cause =
                        format!("{what} has {size} of code, each local variable counted as 1 B; the limit is {limit}");
                    self.problem = Some(Fault::new("wasm module", cause, next));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Without imports, the functions are numbered from 0.
    fn signature(&self, function: u32) -> Option<&FuncType> {
        let ty = *self.functions.get(function as usize)?;
        self.types.get(ty as usize)?.as_ref()
    }
}
