#![no_main]

// One body file, two targets.
#[allow(dead_code)]
#[path = "../bodies/messages.rs"]
mod messages;

libfuzzer_sys::fuzz_target!(|data: &[u8]| messages::message(data));
