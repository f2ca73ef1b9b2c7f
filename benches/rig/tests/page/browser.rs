//! A headless browser that a test leads: Chromium, spoken to over a pipe in its DevTools protocol.
//!
//! Never goes online: its own background requests are off, and it gets an empty profile of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

/// A browser that says nothing for this long is given up.
const SILENCE: Duration = Duration::from_secs(30);
/// Messages that wait to be read.
const AHEAD: usize = 1024;
/// The browser speaks over descriptors 3 and 4, which are its standard input and output here.
const LAUNCH: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;
const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
    "about:blank",
];

/// As `CORELANE_BROWSER` says, or the first one of those in the path.
pub fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CORELANE_BROWSER") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let mut all = names.iter().flat_map(|name| {
        std::env::split_paths(&path).map(move |folder| folder.join(name)).collect::<Vec<_>>()
    });
    all.find(|file| file.is_file())
}

pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// That came in while something else was waited for.
    pub events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub fn start(program: &Path) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", LAUNCH])
            .arg(program)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(FLAGS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (send, from) = sync_channel(AHEAD);
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if send.send(message).is_err() {
                    return;
                }
            }
        });
        let (next, session, events) = (0, None, Vec::new());
        let mut browser = Browser { child, to, from, next, session, events, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// The result; a refusal ends the test.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        self.to.flush().unwrap();
        loop {
            let mut answer = self.receive(method);
            if answer["id"] == json!(id) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }

    fn receive(&mut self, what: &str) -> Value {
        match self.from.recv_timeout(SILENCE) {
            Ok(message) => message,
            Err(error) => panic!("the browser does not answer {what}: {error}"),
        }
    }

    /// As wide as a phone or a desk's screen, light or dark.
    pub fn look(&mut self, width: u32, scheme: &str, media: &str) {
        let size = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600
        });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let scheme = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", json!({ "media": media, "features": [scheme] }));
    }

    pub fn open(&mut self, page: &Path) {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", page.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive("the page to load");
            self.events.push(event);
        }
    }

    /// What a function of JavaScript returns.
    pub fn evaluate(&mut self, function: &str, argument: &Value) -> Value {
        let params = json!({
            "expression": format!("({function})({argument})"), "returnByValue": true
        });
        let mut answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{}", answer["exceptionDetails"]);
        answer["result"]["value"].take()
    }

    /// PNG of what lies below `top` of the page, so much of it.
    pub fn picture(&mut self, top: u64, width: u32, height: u64) -> Vec<u8> {
        let clip = json!({ "x": 0, "y": top, "width": width, "height": height, "scale": 1 });
        let params = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
        let answer = self.call("Page.captureScreenshot", params);
        base64::prelude::BASE64_STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
