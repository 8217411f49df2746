//! Mutants of a Rust file. Each is an `if` around what is there, or in front of it.
//!
//! | mutant | |
//! |---|---|
//! | an operator | `<` is `<=`, `>`; `==` is `!=`; `&&` is `\|\|`; `+` is `-`; `+=` is `-=`, and so on |
//! | a condition | is the opposite |
//! | a number or a truth | is the next, is the other |
//! | a statement | is left out |
//! | an arm of a match with a last arm for everything | is left out |
//! | a function | returns at once: nothing, `None`, `Ok(())`, a truth, 0, 1 or no time |
//!
//! Constants, patterns, types and what stands in macros stay as they are, and so do tests and how values are shown.

use std::collections::BTreeSet;

use quote::{ToTokens, quote};
use syn::visit_mut::{self, VisitMut};
use syn::{Arm, BinOp, Expr, Lit, Pat, ReturnType, Stmt, UnOp, parse_quote};

pub struct Operators<'a> {
    file: &'a str,
    /// The names of the functions around.
    functions: Vec<String>,
    skipped: &'a BTreeSet<String>,
    mutants: &'a mut Vec<String>,
}

impl<'a> Operators<'a> {
    pub fn new(file: &'a str, skipped: &'a BTreeSet<String>, mutants: &'a mut Vec<String>) -> Self {
        Self { file, functions: Vec::new(), skipped, mutants }
    }

    pub fn plant(&mut self, file: &mut syn::File) {
        self.visit_file_mut(file);
    }

    /// The condition under which a new mutant is on; `None` if it is one that does not compile.
    fn mutant(&mut self, what: &str, of: &str) -> Option<Expr> {
        let of: String = of.chars().take(160).collect();
        let name = self.functions.last()?;
        let text = format!("{} {name}: {what} in {of}", self.file);
        if self.skipped.contains(&text) {
            return None;
        }
        self.mutants.push(text);
        let number = self.mutants.len();
        Some(parse_quote!(crate::mutants::on(#number)))
    }

    /// `expr`, or one of `others` where that one's mutant is on.
    fn instead(&mut self, expr: Expr, of: &str, others: Vec<(String, Expr)>) -> Expr {
        let mut result = expr;
        for (what, other) in others {
            if let Some(on) = self.mutant(&what, of) {
                result = parse_quote!((if #on { #other } else { #result }));
            }
        }
        result
    }

    fn function(
        &mut self,
        name: String,
        signature: &syn::Signature,
        block: &mut syn::Block,
        visit: impl FnOnce(&mut Self, &mut syn::Block),
    ) {
        if signature.constness.is_some() || name == "fmt" {
            return;
        }
        self.functions.push(name);
        visit(self, block);
        for value in values(&signature.output).iter().rev() {
            let of = signature.ident.to_string();
            let what = format!("returns {}", text(value));
            if let Some(on) = self.mutant(&what, &of) {
                block.stmts.insert(0, parse_quote!(if #on { return #value; }));
            }
        }
        self.functions.pop();
    }
}

impl VisitMut for Operators<'_> {
    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if !is_tests(module) {
            visit_mut::visit_item_mod_mut(self, module);
        }
    }

    fn visit_item_fn_mut(&mut self, function: &mut syn::ItemFn) {
        let name = function.sig.ident.to_string();
        let signature = function.sig.clone();
        self.function(name, &signature, &mut function.block, |this, block| {
            this.visit_block_mut(block);
        });
    }

    fn visit_impl_item_fn_mut(&mut self, function: &mut syn::ImplItemFn) {
        let of = self.functions.last().cloned().unwrap_or_default();
        let name = format!("{of}::{}", function.sig.ident);
        let name = if function.sig.ident == "fmt" { "fmt".to_owned() } else { name };
        let signature = function.sig.clone();
        self.function(name, &signature, &mut function.block, |this, block| {
            this.visit_block_mut(block);
        });
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        let of = text(&*block.self_ty);
        self.functions.push(of.split([' ', '<']).next().unwrap_or_default().to_owned());
        visit_mut::visit_item_impl_mut(self, block);
        self.functions.pop();
    }

    fn visit_item_trait_mut(&mut self, _: &mut syn::ItemTrait) {}
    fn visit_item_const_mut(&mut self, _: &mut syn::ItemConst) {}
    fn visit_item_static_mut(&mut self, _: &mut syn::ItemStatic) {}
    fn visit_impl_item_const_mut(&mut self, _: &mut syn::ImplItemConst) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_generic_argument_mut(&mut self, _: &mut syn::GenericArgument) {}
    fn visit_macro_mut(&mut self, _: &mut syn::Macro) {}
    fn visit_attribute_mut(&mut self, _: &mut syn::Attribute) {}
    fn visit_expr_repeat_mut(&mut self, _: &mut syn::ExprRepeat) {}

    fn visit_stmt_mut(&mut self, statement: &mut Stmt) {
        let shown = text(&*statement);
        visit_mut::visit_stmt_mut(self, statement);
        let Stmt::Expr(expr, Some(_)) = statement else { return };
        let can_be_left_out = matches!(
            expr,
            Expr::MethodCall(_) | Expr::Call(_) | Expr::Await(_) | Expr::Assign(_) | Expr::Try(_)
        ) || matches!(expr, Expr::Binary(_) | Expr::Paren(_));
        if can_be_left_out && let Some(on) = self.mutant("left out", &shown) {
            *statement = parse_quote!(if !#on { #expr; });
        }
    }

    fn visit_expr_match_mut(&mut self, expr: &mut syn::ExprMatch) {
        let for_everything =
            expr.arms.last().is_some_and(|arm| arm.guard.is_none() && is_for_everything(&arm.pat));
        visit_mut::visit_expr_match_mut(self, expr);
        if !for_everything {
            return;
        }
        let last = expr.arms.len() - 1;
        for arm in &mut expr.arms[..last] {
            let Arm { pat, guard, .. } = arm;
            if guard.as_ref().is_some_and(|(_, guard)| has_let(guard)) {
                continue;
            }
            if let Some(on) = self.mutant("arm left out", &text(&*pat)) {
                *guard = Some(match guard.take() {
                    Some((word, guard)) => (word, parse_quote!(!#on && (#guard))),
                    None => (Default::default(), parse_quote!(!#on)),
                });
            }
        }
    }

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let shown = text(&*expr);
        if let Expr::If(branch) = expr {
            let condition = text(&*branch.cond);
            visit_mut::visit_expr_if_mut(self, branch);
            if matches!(
                &*branch.cond,
                Expr::MethodCall(_) | Expr::Call(_) | Expr::Path(_) | Expr::Field(_)
            ) {
                let cond = (*branch.cond).clone();
                let opposite = parse_quote!(!(#cond));
                *branch.cond =
                    self.instead(cond, &condition, vec![("the opposite".to_owned(), opposite)]);
            }
            return;
        }
        visit_mut::visit_expr_mut(self, expr);
        match expr {
            Expr::Binary(binary) => {
                if has_let(&binary.left) || has_let(&binary.right) {
                    return;
                }
                let (left, right) = (&binary.left, &binary.right);
                let others = others(&binary.op).into_iter().map(|op| {
                    let what = format!("`{}` becomes `{}`", text(&binary.op), text(&op));
                    (what, parse_quote!(#left #op #right))
                });
                let others = others.collect();
                *expr = self.instead(expr.clone(), &shown, others);
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let inner = (*unary.expr).clone();
                *expr = self.instead(expr.clone(), &shown, vec![("no `!`".to_owned(), inner)]);
            }
            Expr::Lit(literal) => {
                let other: Expr = match &literal.lit {
                    Lit::Bool(truth) => {
                        let other = !truth.value;
                        parse_quote!(#other)
                    }
                    Lit::Int(number) => {
                        let Ok(value) = number.base10_parse::<u64>() else { return };
                        let next = syn::LitInt::new(
                            &format!("{}{}", value + 1, number.suffix()),
                            number.span(),
                        );
                        parse_quote!(#next)
                    }
                    _ => return,
                };
                let what = format!("`{}` for `{shown}`", text(&other));
                let around = self.functions.last().cloned().unwrap_or_default();
                *expr = self.instead(expr.clone(), &around, vec![(what, other)]);
            }
            _ => {}
        }
    }
}

/// `_` or a name; `None` looks like a name.
fn is_for_everything(pattern: &Pat) -> bool {
    match pattern {
        Pat::Wild(_) => true,
        Pat::Ident(name) => name.ident.to_string().starts_with(|c: char| c.is_lowercase()),
        _ => false,
    }
}

/// Whether it binds something for what follows it.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn others(op: &BinOp) -> Vec<BinOp> {
    match op {
        BinOp::And(_) => vec![parse_quote!(||)],
        BinOp::Or(_) => vec![parse_quote!(&&)],
        BinOp::Eq(_) => vec![parse_quote!(!=)],
        BinOp::Ne(_) => vec![parse_quote!(==)],
        BinOp::Lt(_) => vec![parse_quote!(<=), parse_quote!(>)],
        BinOp::Le(_) => vec![parse_quote!(<), parse_quote!(>)],
        BinOp::Gt(_) => vec![parse_quote!(>=), parse_quote!(<)],
        BinOp::Ge(_) => vec![parse_quote!(>), parse_quote!(<)],
        BinOp::Add(_) => vec![parse_quote!(-)],
        BinOp::Sub(_) => vec![parse_quote!(+)],
        BinOp::Mul(_) => vec![parse_quote!(/)],
        BinOp::Div(_) => vec![parse_quote!(*)],
        BinOp::AddAssign(_) => vec![parse_quote!(-=)],
        BinOp::SubAssign(_) => vec![parse_quote!(+=)],
        BinOp::BitOr(_) => vec![parse_quote!(&)],
        BinOp::BitAnd(_) => vec![parse_quote!(|)],
        BinOp::BitOrAssign(_) => vec![parse_quote!(&=)],
        BinOp::BitAndAssign(_) => vec![parse_quote!(|=)],
        _ => Vec::new(),
    }
}

/// What a function may return instead.
fn values(output: &ReturnType) -> Vec<Expr> {
    let ReturnType::Type(_, output) = output else { return vec![parse_quote!(())] };
    match &*text(output) {
        "()" => vec![parse_quote!(())],
        "bool" => vec![parse_quote!(true), parse_quote!(false)],
        "u32" | "u64" | "usize" | "i64" => vec![parse_quote!(0), parse_quote!(1)],
        "Duration" => vec![parse_quote!(std::time::Duration::ZERO)],
        "String" => vec![parse_quote!(String::new())],
        output if output.starts_with("Option <") => vec![parse_quote!(None)],
        output if output.starts_with("Result < () ,") => vec![parse_quote!(Ok(()))],
        output if output.starts_with("Vec <") => vec![parse_quote!(Vec::new())],
        _ => Vec::new(),
    }
}

fn text(tokens: &impl ToTokens) -> String {
    let text = quote!(#tokens).to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn is_tests(module: &syn::ItemMod) -> bool {
    module.ident == "tests"
}
