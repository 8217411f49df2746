//! The scripts, run by the same Lua that servers have: 5.1.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use mlua::{ChunkMode, Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue};

use super::Core;
use super::resp::Value;

/// A Lua state whose `redis.call` reaches one server's keys and channels.
pub struct Scripts {
    lua: Lua,
    core: Rc<RefCell<Core>>,
    /// Compiled ones, by hash. What a server forgets is compiled still.
    compiled: BTreeMap<String, Function>,
}

impl Scripts {
    pub fn new(core: Rc<RefCell<Core>>) -> Self {
        // Whoever reaches the port can send a script, and no script may reach this machine: neither its files nor its programs.
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default()).expect("safe libraries");
        for name in FORBIDDEN {
            lua.globals().set(name, LuaValue::Nil).expect("set");
        }
        let redis = lua.create_table().expect("a table");
        for (name, raises) in [("call", true), ("pcall", false)] {
            let core = core.clone();
            let call = lua.create_function(move |lua, args: MultiValue| {
                let words: Option<Vec<Vec<u8>>> = args.iter().map(word).collect();
                let reply = match words {
                    Some(words) if !words.is_empty() => core.borrow_mut().run_inside(&words),
                    _ => Value::error(
                        "ERR Lua redis lib command arguments must be strings or integers",
                    ),
                };
                if let (Value::Error(text), true) = (&reply, raises) {
                    core.borrow_mut().raised = Some(text.clone());
                    return Err(mlua::Error::runtime(text));
                }
                to_lua(lua, &reply)
            });
            redis.set(name, call.expect("a function")).expect("set");
        }
        let error_reply = lua.create_function(|lua, text: String| {
            let table = lua.create_table()?;
            table.set("err", text)?;
            Ok(table)
        });
        redis.set("error_reply", error_reply.expect("a function")).expect("set");
        lua.globals().set("redis", redis).expect("set");
        Self { lua, core, compiled: BTreeMap::new() }
    }

    /// Runs a script: its hash, its body, its keys and its arguments.
    pub fn run(&mut self, hash: &str, body: &[u8], keys: &[Vec<u8>], args: &[Vec<u8>]) -> Value {
        let result = self.function(hash, body).and_then(|function| {
            self.lua.globals().set("KEYS", self.list(keys)?)?;
            self.lua.globals().set("ARGV", self.list(args)?)?;
            function.call::<LuaValue>(())
        });
        let raised = self.core.borrow_mut().raised.take();
        match result {
            Ok(value) => from_lua(&value, 0, &mut MOST_VALUES.clone()),
            Err(error) => {
                // The script may have caught it, and have ended with another one.
                let text = error.to_string();
                let raised = raised.filter(|raised| text.contains(raised.as_str()));
                Value::Error(raised.unwrap_or_else(|| broken(&error)))
            }
        }
    }

    fn function(&mut self, hash: &str, body: &[u8]) -> mlua::Result<Function> {
        if let Some(function) = self.compiled.get(hash) {
            return Ok(function.clone());
        }
        // Compiled code is not checked, and could do anything.
        let chunk = self.lua.load(body).set_name("@user_script").set_mode(ChunkMode::Text);
        let function = chunk.into_function()?;
        self.compiled.insert(hash.to_owned(), function.clone());
        Ok(function)
    }

    fn list(&self, words: &[Vec<u8>]) -> mlua::Result<Table> {
        let words = words.iter().map(|word| self.lua.create_string(word));
        self.lua.create_sequence_from(words.collect::<mlua::Result<Vec<_>>>()?)
    }
}

/// What the basic library has for files, for the terminal and for compiled code.
const FORBIDDEN: [&str; 7] =
    ["dofile", "load", "loadfile", "loadstring", "module", "print", "require"];

/// What a server says of a script that broke by itself.
fn broken(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::RuntimeError(text) => text.clone(),
        other => other.to_string(),
    };
    format!("ERR {}", text.lines().next().unwrap_or_default())
}

/// A table may contain itself. Real servers go down some thousand levels, and the crate `redis` reads a hundred of them.
const MOST_LEVELS: usize = 128;

fn word(value: &LuaValue) -> Option<Vec<u8>> {
    match value {
        LuaValue::String(text) => Some(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Some(number.to_string().into_bytes()),
        LuaValue::Number(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<LuaValue> {
    let table = |key: &str, text: &str| {
        let table = lua.create_table()?;
        table.set(key, text)?;
        Ok(LuaValue::Table(table))
    };
    match value {
        Value::Nil => Ok(LuaValue::Boolean(false)),
        Value::Int(number) => Ok(LuaValue::Number(*number as f64)),
        Value::Bulk(bytes) => Ok(LuaValue::String(lua.create_string(bytes)?)),
        Value::Verbatim(text) => Ok(LuaValue::String(lua.create_string(text)?)),
        Value::Status(text) => table("ok", text),
        Value::Error(text) => table("err", text),
        Value::Array(items) | Value::Push(items) => {
            let items: mlua::Result<Vec<_>> = items.iter().map(|item| to_lua(lua, item)).collect();
            Ok(LuaValue::Table(lua.create_sequence_from(items?)?))
        }
        Value::Map(pairs) => {
            let items: mlua::Result<Vec<_>> = pairs
                .iter()
                .flat_map(|(key, value)| [key, value])
                .map(|item| to_lua(lua, item))
                .collect();
            Ok(LuaValue::Table(lua.create_sequence_from(items?)?))
        }
    }
}

/// A table that contains itself twice would be an answer without an end.
const MOST_VALUES: usize = 1 << 20;

/// Returns the answer that a script's result is. `level`: how many tables are around it; `left`: how many values it may still have.
fn from_lua(value: &LuaValue, level: usize, left: &mut usize) -> Value {
    *left = left.saturating_sub(1);
    match value {
        LuaValue::Boolean(true) => Value::Int(1),
        LuaValue::Integer(number) => Value::Int(*number),
        // As servers do: what is behind the point is lost.
        LuaValue::Number(number) => Value::Int(*number as i64),
        LuaValue::String(text) => Value::bulk(text.as_bytes()),
        LuaValue::Table(_) if level == MOST_LEVELS || *left == 0 => {
            Value::error("ERR reached lua stack limit")
        }
        LuaValue::Table(table) => {
            let field = |key: &str| table.raw_get::<Option<String>>(key).ok().flatten();
            if let Some(text) = field("err") {
                return Value::Error(text);
            }
            if let Some(text) = field("ok") {
                return Value::Status(text);
            }
            Value::Array(
                table
                    .sequence_values::<LuaValue>()
                    .map_while(Result::ok)
                    .map(|item| from_lua(&item, level + 1, left))
                    .collect(),
            )
        }
        _ => Value::Nil,
    }
}
