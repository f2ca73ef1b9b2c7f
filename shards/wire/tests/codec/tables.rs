//! The generator refuses tables that it would misread, and names the place.

use crate::{emit, schema};

fn generate(text: &str) -> Result<String, String> {
    emit::messages(&schema::parse(text)?)
}

#[test]
fn a_table_becomes_types() {
    let text = "request PingRequest 0-2 key=7 flex=2+\n  Names []string 1+ nullable=1+\n";
    let source = generate(text).unwrap();
    assert!(source.contains("pub struct PingRequest<'a>"), "{source}");
    assert!(source.contains("pub names: Option<c::Array<'a, c::Text<'a>>>"), "{source}");
    assert!(source.contains("const FLEXIBLE_FROM: Option<i16> = Some(2);"), "{source}");
}

#[test]
fn malformed_lines_are_refused_with_their_number() {
    let cases = [
        ("request A", "line 1: a message has a type, a name and versions"),
        ("request A 0-x", "line 1: version x: invalid digit found in string"),
        ("request A 3-1", "line 1: versions 3-1 are out of order"),
        ("request A 0 colour=red", "line 1: unknown option colour=red"),
        ("request A 0\n  X int32", "line 2: a field has a name, a type and versions"),
        ("request A 0\n  X int33 0+", "line 2: unknown type int33"),
        ("request A 0\n  X int32 0+\n  Y int32 0+ tagged=1+", "line 3: unknown option tagged=1+"),
        ("request A 0\n  X int32 0+ tag=x", "line 2: invalid digit found in string"),
    ];
    for (text, problem) in cases {
        assert_eq!(schema::parse(text).err().as_deref(), Some(problem), "{text}");
    }
}

#[test]
fn tables_that_cannot_be_generated_are_refused() {
    let cases = [
        ("data A 0\ndata A 0", "two messages are named A"),
        ("data A 0\n  X []B 0+", "A: no structure is named B"),
        ("data A 0\n  X []Some 0+\n    Y int8 0+", "A: the structure name Some is taken"),
        ("data A 0-1\n  X []B 0+\n    Y int8 1+", "A: B can be empty in version 0"),
        ("data A 0 flex=0+\n  X string 0+ flex=none", "A: A.X: never flexible"),
        ("data A 0\n  X bool 0+ default=maybe", "A: X has no default Some(\"maybe\")"),
        ("data A 0\n  X int8 0+ default=one", "A: X has no default Some(\"one\")"),
        ("data A 0\n  X string 0+ default=null", "A: X has no default Some(\"null\")"),
    ];
    for (text, problem) in cases {
        assert_eq!(generate(text).err().as_deref(), Some(problem), "{text}");
    }
}
