//! XML text as a tree that knows where each part stands. Bounded in size and depth; no DTD, no entities but XML's own.

use std::ops::Range;

use quick_xml::Reader;
use quick_xml::events::attributes::AttrError;
use quick_xml::events::{BytesStart, Event};

use super::problem::Mistake;

/// An ODF has four levels.
const DEPTH: usize = 8;
/// No element of an ODF has as many.
const ATTRIBUTES: usize = 32;

const LONE_AMPERSAND: (&str, &str) = ("'&' begins no reference", "write &amp; for the character itself");

pub(super) struct Element {
    pub name: String,
    /// Of the start tag's name.
    pub at: Range<usize>,
    pub attributes: Vec<Attribute>,
    pub children: Vec<Element>,
    pub text: String,
    /// Of the first text that is not blank.
    pub text_at: Option<Range<usize>>,
}

pub(super) struct Attribute {
    pub name: String,
    pub at: Range<usize>,
    pub value: String,
    pub value_at: Range<usize>,
}

/// The root, if the text is well-formed enough to have one; mistakes are added.
pub(super) fn parse(text: &str, mistakes: &mut Vec<Mistake>) -> Option<Element> {
    let mut parser = Parser { mistakes, open: Vec::new(), root: None };
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_comments = true;
    // Else a lone '&' would hide every mistake after it.
    reader.config_mut().allow_dangling_amp = true;
    reader.config_mut().trim_markup_names_in_closing_tags = true;
    loop {
        let start = reader.buffer_position() as usize;
        let event = match reader.read_event() {
            Ok(Event::Eof) => break,
            Ok(event) => event,
            Err(error) => {
                let at = reader.error_position() as usize;
                let next = "make it well-formed XML: each <tag> closed by its </tag>, or written <tag/>";
                let why = match error {
                    quick_xml::Error::IllFormed(error) => error.to_string(),
                    quick_xml::Error::Syntax(error) => error.to_string(),
                    other => other.to_string(),
                };
                parser.mistake(at..at + 1, format!("this is not XML: {why}"), next);
                return None;
            }
        };
        let end = reader.buffer_position() as usize;
        if !parser.take(event, start..end, text) {
            return None;
        }
    }
    if let Some(open) = parser.open.last() {
        let (at, name) = (open.at.clone(), open.name.clone());
        parser.mistake(at, format!("<{name}> is not closed"), format!("write </{name}> where it ends"));
        return None;
    }
    if parser.root.is_none() {
        parser.mistake(0..0, "there is no element", "write an <odf> element; `plimsoll odf schema` prints the format");
    }
    parser.root
}

struct Parser<'m> {
    mistakes: &'m mut Vec<Mistake>,
    open: Vec<Element>,
    root: Option<Element>,
}

impl Parser<'_> {
    fn mistake(&mut self, at: Range<usize>, cause: impl Into<String>, next: impl Into<String>) {
        self.mistakes.push(Mistake { at, cause: cause.into(), next: next.into() });
    }

    /// False where reading on would make no sense.
    fn take(&mut self, event: Event<'_>, at: Range<usize>, text: &str) -> bool {
        match event {
            Event::Start(tag) => {
                let element = self.element(&tag, at.start);
                if self.open.len() == DEPTH {
                    self.mistake(
                        element.at,
                        format!("elements are nested more than {DEPTH} deep"),
                        "an ODF has four levels",
                    );
                    return false;
                }
                self.open.push(element);
            }
            Event::Empty(tag) => {
                let element = self.element(&tag, at.start);
                return self.close(element);
            }
            // The reader has checked that it closes what is open.
            Event::End(_) => {
                if let Some(element) = self.open.pop() {
                    return self.close(element);
                }
            }
            Event::Text(part) => {
                if part.contains("]]>") {
                    self.mistake(at.clone(), "']]>' stands in text", "write ]]&gt;");
                }
                for (lone, _) in part.match_indices('&') {
                    let lone = at.start + lone;
                    self.mistake(lone..lone + 1, LONE_AMPERSAND.0, LONE_AMPERSAND.1);
                }
                self.text(&part.xml10_content(), at);
            }
            // Around the root there may be white space, as it is.
            Event::CData(_) | Event::GeneralRef(_) if self.open.is_empty() => self.outside(at),
            Event::CData(part) => self.text(&part.xml10_content(), at),
            Event::GeneralRef(reference) => match resolve(&reference.into_inner()) {
                Ok(character) => self.text(character.encode_utf8(&mut [0; 4]), at),
                Err((cause, next)) => self.mistake(at, cause, next),
            },
            Event::DocType(_) => {
                self.mistake(at, "a DOCTYPE is not read: an ODF has no DTD and no entities", "leave it out");
                return false;
            }
            Event::Decl(declaration) => {
                if at.start != 0 {
                    self.mistake(
                        at.clone(),
                        "the XML declaration is not at the beginning",
                        "move it there, or leave it out",
                    );
                }
                let version = declaration.version().is_ok_and(|version| version == "1.0");
                let encoding = declaration.encoding().and_then(|encoding| encoding.ok());
                let encoding = encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case("utf-8"));
                let standalone = declaration.standalone().and_then(|standalone| standalone.ok());
                let standalone = standalone.is_none_or(|standalone| standalone == "yes" || standalone == "no");
                if !(version && encoding && standalone && well_declared(&text[at.clone()])) {
                    let next = r#"write <?xml version="1.0" encoding="UTF-8"?>, or leave it out"#;
                    self.mistake(at, "the XML declaration is not that of an ODF", next);
                }
            }
            Event::PI(instruction) => {
                if !is_name(instruction.target()) || instruction.target().eq_ignore_ascii_case("xml") {
                    self.mistake(at, "a processing instruction has no proper name", "leave it out");
                }
            }
            Event::Comment(_) | Event::Eof => {}
        }
        true
    }

    fn close(&mut self, element: Element) -> bool {
        if let Some(parent) = self.open.last_mut() {
            parent.children.push(element);
        } else if self.root.is_none() {
            self.root = Some(element);
        } else {
            self.mistake(
                element.at,
                format!("<{}> is a second root element", element.name),
                "an ODF file is one <odf> element",
            );
            return false;
        }
        true
    }

    fn text(&mut self, text: &str, at: Range<usize>) {
        let blank = text.bytes().all(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
        match self.open.last_mut() {
            Some(element) => {
                element.text += text;
                if !blank && element.text_at.is_none() {
                    element.text_at = Some(at);
                }
            }
            None if blank => {}
            None => self.outside(at),
        }
    }

    fn outside(&mut self, at: Range<usize>) {
        self.mistake(at, "text stands outside of any element", "leave it out, or make it a <!-- comment -->");
    }

    fn element(&mut self, tag: &BytesStart<'_>, start: usize) -> Element {
        // The tag's content begins with its name, after '<'.
        let (name, content) = (tag.name().into_inner(), start + 1);
        let place = |part: &str| {
            let from = content + (part.as_ptr() as usize).saturating_sub(name.as_ptr() as usize);
            from..from + part.len()
        };
        let at = place(name);
        let mut attributes: Vec<Attribute> = Vec::new();
        let mut end_of_last = at.end;
        for (count, attribute) in tag.attributes().enumerate() {
            // Looking for doubles takes time with the square of their number.
            if count == ATTRIBUTES {
                self.mistake(
                    at.clone(),
                    format!("<{name}> has more than {ATTRIBUTES} attributes"),
                    "see `plimsoll odf schema`",
                );
                break;
            }
            let attribute = match attribute {
                Ok(attribute) => attribute,
                Err(error) => {
                    let (offset, cause, next) = attribute_mistake(&error);
                    let from = content + offset;
                    self.mistake(from..from + 1, cause, next);
                    continue;
                }
            };
            let key = attribute.key.into_inner();
            let key_at = place(key);
            let std::borrow::Cow::Borrowed(raw) = attribute.value else { continue };
            let value_at = place(raw);
            if key_at.start == end_of_last {
                self.mistake(key_at.clone(), "no space stands before this attribute", "put one there");
            }
            end_of_last = value_at.end + 1;
            let value = self.value(raw, value_at.start);
            attributes.push(Attribute { name: key.to_owned(), at: key_at, value, value_at });
        }
        if !is_name(name) {
            self.mistake(
                at.clone(),
                format!("'{name}' is no name of an element"),
                "see `plimsoll odf schema` for the elements",
            );
        }
        Element { name: name.to_owned(), at, attributes, children: Vec::new(), text: String::new(), text_at: None }
    }

    /// An attribute's value with references resolved and white space made blanks, as XML has it.
    fn value(&mut self, raw: &str, start: usize) -> String {
        let mut value = String::with_capacity(raw.len());
        let mut rest = raw;
        while let Some(next) = rest.chars().next() {
            let offset = start + raw.len() - rest.len();
            let mut length = next.len_utf8();
            match next {
                // No reference has another '&' in it, and none is looked for beyond that.
                '&' => match rest[1..].split_once(['&', ';']) {
                    Some((reference, _)) if rest[1 + reference.len()..].starts_with(';') => {
                        length = reference.len() + 2;
                        match resolve(reference) {
                            Ok(character) => value.push(character),
                            Err((cause, next)) => self.mistake(offset..offset + length, cause, next),
                        }
                    }
                    _ => self.mistake(offset..offset + 1, LONE_AMPERSAND.0, LONE_AMPERSAND.1),
                },
                '<' => self.mistake(offset..offset + 1, "'<' stands in a value", "write &lt;"),
                '\r' if rest.starts_with("\r\n") => {
                    length = 2;
                    value.push(' ');
                }
                '\r' | '\n' | '\t' => value.push(' '),
                other => value.push(other),
            }
            rest = &rest[length..];
        }
        value
    }
}

/// What stands between `&` and `;`.
fn resolve(reference: &str) -> Result<char, (String, &'static str)> {
    let number = |digits: &str, radix| {
        // `from_str_radix` takes a sign.
        let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| u32::from_str_radix(digits, radix).ok()).flatten().and_then(char::from_u32)
    };
    let character = match reference {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "apos" => Some('\''),
        "quot" => Some('"'),
        _ => match reference.strip_prefix('#') {
            Some(digits) => match digits.strip_prefix('x') {
                Some(hexadecimal) => number(hexadecimal, 16),
                None => number(digits, 10),
            },
            None => {
                let next = "write the text itself; &lt; &gt; &amp; &apos; &quot; and numbers such as &#10; are known";
                return Err((format!("the entity &{reference}; is not read"), next));
            }
        },
    };
    match character {
        Some(character) if is_xml_character(character) => Ok(character),
        _ => Err((format!("&{reference}; is no character that XML can hold"), "leave it out")),
    }
}

/// XML 1.0, production 2.
pub(super) fn is_xml_character(character: char) -> bool {
    !matches!(character, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// The names that an ODF has are plain; what is beyond them is refused as unknown in any case.
fn is_name(name: &str) -> bool {
    name.chars().enumerate().all(|(i, c)| {
        c.is_alphabetic() || matches!(c, '_' | ':') || (i > 0 && (c.is_numeric() || matches!(c, '-' | '.')))
    }) && !name.is_empty()
}

/// Whether a declaration has nothing but its three parts, in their order; the reader does not look.
fn well_declared(declaration: &str) -> bool {
    let Some(mut rest) = declaration.strip_prefix("<?xml").and_then(|rest| rest.strip_suffix("?>")) else {
        return false;
    };
    for part in ["version", "encoding", "standalone"] {
        let trimmed = rest.trim_start();
        let Some(after) = trimmed.strip_prefix(part) else { continue };
        if trimmed.len() == rest.len() {
            return false;
        }
        let Some(value) = after.trim_start().strip_prefix('=').map(str::trim_start) else { return false };
        let Some(quote) = value.chars().next().filter(|c| matches!(c, '"' | '\'')) else { return false };
        let Some(end) = value[1..].find(quote) else { return false };
        rest = &value[end + 2..];
    }
    rest.trim().is_empty()
}

fn attribute_mistake(error: &AttrError) -> (usize, &'static str, &'static str) {
    let next = r#"write attributes like name="value""#;
    match *error {
        AttrError::ExpectedEq(at) => (at, "an attribute has no '='", next),
        AttrError::ExpectedValue(at) => (at, "an attribute has no value", next),
        AttrError::UnquotedValue(at) => (at, "a value is not quoted", next),
        AttrError::ExpectedQuote(at, _) => (at, "a value's quote is not closed", next),
        AttrError::Duplicated(at, _) => (at, "this attribute stands here twice", "leave one of them out"),
    }
}
