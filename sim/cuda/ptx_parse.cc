#include <algorithm>
#include <cstring>
#include <optional>

#include "sim/cuda/ptx.h"
#include "sim/cuda/ptx_check.h"
#include "sim/cuda/ptx_lex.h"
#include "sim/cuda/ptx_ops.h"

namespace gpuop::sim::ptx {

namespace {

constexpr std::uint32_t kMaxRegisters = 4096;
constexpr std::uint64_t kMaxVariable = 64u << 20;
constexpr std::uint32_t kMaxShared = 227 << 10;
constexpr std::size_t kMaxCode = 1u << 20;

std::vector<std::string> split_dots(const std::string& word) {
  std::vector<std::string> out;
  std::size_t at = 0;
  while (at <= word.size()) {
    std::size_t end = std::min(word.find('.', at), word.size());
    out.push_back(word.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::uint64_t align_up(std::uint64_t v, std::uint64_t a) {
  return (v + a - 1) / a * a;
}

struct Symbol {
  enum class Kind { kRegister, kVariable };
  Kind kind = Kind::kRegister;
  Type type = Type::kNone;
  std::uint32_t index = 0;       // register
  Space space = Space::kGlobal;  // variable …
  std::uint64_t address = 0;     // … and where it is in its space
};

std::optional<Special> special_named(std::string_view name) {
  constexpr std::pair<std::string_view, Special> kNames[] = {{"%tid.x", Special::kTidX},
                                                             {"%tid.y", Special::kTidY},
                                                             {"%tid.z", Special::kTidZ},
                                                             {"%ntid.x", Special::kNtidX},
                                                             {"%ntid.y", Special::kNtidY},
                                                             {"%ntid.z", Special::kNtidZ},
                                                             {"%ctaid.x", Special::kCtaidX},
                                                             {"%ctaid.y", Special::kCtaidY},
                                                             {"%ctaid.z", Special::kCtaidZ},
                                                             {"%nctaid.x", Special::kNctaidX},
                                                             {"%nctaid.y", Special::kNctaidY},
                                                             {"%nctaid.z", Special::kNctaidZ},
                                                             {"%laneid", Special::kLaneid},
                                                             {"%warpid", Special::kWarpid},
                                                             {"WARP_SZ", Special::kWarpSize},
                                                             {"%clock", Special::kClock},
                                                             {"%clock64", Special::kClock},
                                                             {"%smid", Special::kSmid},
                                                             {"%lanemask_eq", Special::kLanemaskEq},
                                                             {"%lanemask_lt", Special::kLanemaskLt},
                                                             {"%lanemask_le", Special::kLanemaskLe},
                                                             {"%lanemask_gt", Special::kLanemaskGt},
                                                             {"%lanemask_ge", Special::kLanemaskGe},
                                                             {"%nwarpid", Special::kNwarpid},
                                                             {"%nsmid", Special::kNsmid},
                                                             {"%gridid", Special::kGridid},
                                                             {"%globaltimer", Special::kClock}};
  for (const auto& [n, s] : kNames) {
    if (n == name) return s;
  }
  return std::nullopt;
}

class Parser {
 public:
  Parser(std::vector<Token> tokens, Module* out) : tokens_(std::move(tokens)), out_(out) {}

  bool run(std::string* log) {
    header();
    while (!failed_ && !ends()) top_level();
    if (failed_) *log = log_;
    return !failed_;
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  bool ends() const { return now().kind == Token::Kind::kEnd; }
  bool is_mark(char c) const { return now().kind == Token::Kind::kMark && now().text[0] == c; }
  bool is_word(std::string_view w) const { return now().kind == Token::Kind::kWord && now().text == w; }
  void next() {
    if (!ends()) ++at_;
  }
  bool take(char c) {
    if (!is_mark(c)) return false;
    next();
    return true;
  }
  bool take(std::string_view w) {
    if (!is_word(w)) return false;
    next();
    return true;
  }

  void fail(const std::string& why, int line = 0) {
    if (failed_) return;
    failed_ = true;
    log_ = "ptxas application ptx input, line " + std::to_string(line ? line : now().line) +
           "; error   : " + why + "\nptxas fatal   : Ptx assembly aborted due to errors\n";
  }
  void want(char c) {
    if (!take(c)) fail(std::string("Parsing error near '") + now().text + "': expected '" + c + "'");
  }
  std::string name() {
    if (now().kind != Token::Kind::kWord)
      return fail("Parsing error near '" + now().text + "': expected a name"), "";
    std::string n = now().text;
    next();
    return n;
  }
  std::uint64_t number() {
    if (now().kind != Token::Kind::kInteger) {
      return fail("Parsing error near '" + now().text + "': expected a number"), 0;
    }
    std::uint64_t v = now().integer;
    next();
    return v;
  }

  void header() {
    if (!take(".version")) return fail("Missing .version directive at start of file");
    // "8.4" was read as one real number.
    if (now().kind == Token::Kind::kReal) {
      std::size_t dot = now().text.find('.');
      out_->version_major = std::atoi(now().text.c_str());
      out_->version_minor = dot == std::string::npos ? 0 : std::atoi(now().text.c_str() + dot + 1);
      next();
    } else {
      fail("Parsing error near '" + now().text + "': expected a version");
    }
    if (out_->version_major < 1 || out_->version_major > 99) fail("Unsupported .version");
    if (!take(".target")) return fail("Missing .target directive");
    std::string target = name();
    if (!target.starts_with("sm_") && !target.starts_with("compute_")) {
      return fail("Unknown target '" + target + "'");
    }
    out_->target = std::atoi(target.c_str() + target.find('_') + 1);
    while (take(',')) name();  // texmode_…, debug
    if (take(".address_size") && number() != 64) fail("Only 64-bit addresses are supported on this device");
  }

  void top_level() {
    if (take(".visible") || take(".weak") || take(".extern"))
      return;  // linkage does not matter in one module
    if (take(".entry")) return kernel();
    if (is_word(".func"))
      return fail("Calls of functions (.func) are not supported by this device's compiler");
    if (take(".file")) {
      while (!failed_ &&
             (now().kind == Token::Kind::kInteger || now().kind == Token::Kind::kString || is_mark(',')))
        next();
      return;
    }
    if (is_word(".global") || is_word(".const")) {
      bool constant = is_word(".const");
      next();
      return variable(constant ? Space::kConst : Space::kGlobal, globals_);
    }
    if (take(".shared")) return variable(Space::kShared, globals_);
    if (take(".pragma")) {
      next();
      return want(';');
    }
    if (take(".section")) {  // debug information
      while (!failed_ && !ends() && !is_mark('}')) next();
      return want('}');
    }
    fail("Parsing error near '" + now().text + "': unexpected at module level");
  }

  // After ".reg"/".shared"/…: alignment and type. Answers the type.
  Type variable_type(std::uint64_t* align) {
    if (take(".align")) {
      *align = number();
      if (*align == 0 || (*align & (*align - 1)) != 0 || *align > 1024)
        fail("Alignment must be a power of two");
    }
    std::string word = name();
    Type t = word.starts_with(".") ? type_named(std::string_view(word).substr(1)) : Type::kNone;
    if (!failed_ && t == Type::kNone) fail("Unknown type '" + word + "'", tokens_[at_ - 1].line);
    *align = std::max<std::uint64_t>(*align, size_of(t));
    return t;
  }

  std::string initial_bytes(Type t) {
    std::string bytes;
    bool list = take('{');
    do {
      bool minus = take('-');
      std::uint64_t raw = 0;
      double real = now().kind == Token::Kind::kReal ? now().real : static_cast<double>(now().integer);
      if (now().kind != Token::Kind::kReal && now().kind != Token::Kind::kInteger) {
        return fail("Parsing error near '" + now().text + "': expected a value"), "";
      }
      if (minus) real = -real;
      if (t == Type::kF64)
        std::memcpy(&raw, &real, 8);
      else if (t == Type::kF32) {
        auto f = static_cast<float>(real);
        std::memcpy(&raw, &f, 4);
      } else {
        raw = minus ? ~now().integer + 1 : now().integer;
      }
      next();
      bytes.append(reinterpret_cast<const char*>(&raw), size_of(t));
      if (bytes.size() > kMaxVariable) return fail("Initializer is too large"), "";
    } while (list && take(',') && !failed_);
    if (list) want('}');
    return bytes;
  }

  void variable(Space space, std::map<std::string, Symbol>& scope) {
    std::uint64_t align = 1;
    Type t = variable_type(&align);
    do {
      int line = now().line;
      std::string n = name();
      std::uint64_t count = 1;
      bool open = false;
      while (!failed_ && take('[')) {
        if (is_mark(']'))
          open = true;
        else
          count *= std::min<std::uint64_t>(number(), kMaxVariable + 1);
        if (count > kMaxVariable) fail("Variable '" + n + "' is too large");
        want(']');
      }
      std::string initial;
      if (take('=')) initial = initial_bytes(t);
      if (failed_) return;
      if (open) count = initial.size() / size_of(t);
      std::uint64_t size = count * size_of(t);
      if (size > kMaxVariable || initial.size() > size)
        return fail("Variable '" + n + "' is too large", line);
      if (scope.contains(n)) return fail("Duplicate definition of variable '" + n + "'", line);
      Symbol s{Symbol::Kind::kVariable, t, 0, space, 0};
      if (space == Space::kShared) {
        s.address = align_up(shared_, align);
        shared_ = s.address + size;
        if (shared_ > kMaxShared) return fail("Entry function uses too much shared data", line);
      } else if (space == Space::kLocal) {
        s.address = align_up(kernel_->local_bytes, align);
        if (s.address + size > (512u << 10)) return fail("Entry function uses too much local data", line);
        kernel_->local_bytes = static_cast<std::uint32_t>(s.address + size);
      } else {
        out_->variables.push_back(Variable{n, size, initial, 0});
        s.address = std::uint64_t{out_->variables.size() - 1} << 32;
        if (out_->variables.size() > 4096) return fail("Too many variables", line);
      }
      scope[n] = s;
    } while (take(','));
    want(';');
  }

  void kernel() {
    std::uint32_t module_shared = static_cast<std::uint32_t>(shared_);
    out_->kernels.emplace_back();
    kernel_ = &out_->kernels.back();
    kernel_->name = name();
    for (std::size_t i = 0; i + 1 < out_->kernels.size(); ++i) {
      if (out_->kernels[i].name == kernel_->name)
        fail("Duplicate definition of function '" + kernel_->name + "'");
    }
    locals_.clear();
    outer_.clear();
    labels_.clear();
    uses_.clear();
    if (take('(')) {
      while (!failed_ && !is_mark(')')) {
        parameter();
        if (!take(',')) break;
      }
      want(')');
    }
    tuning();
    want('{');
    depth_ = 1;
    while (!failed_ && depth_ > 0) statement();
    resolve();
    kernel_->shared_bytes = static_cast<std::uint32_t>(shared_);
    shared_ = module_shared;
  }

  void parameter() {
    if (!take(".param")) return fail("Parsing error near '" + now().text + "': expected '.param'");
    std::uint64_t align = 1;
    Type t = variable_type(&align);
    if (take(".ptr")) {
      while (!failed_ && (take(".global") || take(".shared") || take(".const") || take(".local"))) {
      }
      if (take(".align")) number();
    }
    Parameter p;
    p.name = name();
    std::uint64_t count = 1;
    if (take('[')) {
      count = number();
      want(']');
    }
    if (failed_) return;
    if (count == 0 || count > 4096) return fail("Parameter '" + p.name + "' is too large");
    p.size = static_cast<std::uint32_t>(count * size_of(t));
    p.offset = static_cast<std::uint32_t>(align_up(kernel_->parameter_bytes, align));
    kernel_->parameter_bytes = p.offset + p.size;
    if (kernel_->parameter_bytes > 32764) return fail("Formal parameter space overflowed");
    if (locals_.contains(p.name)) return fail("Duplicate definition of parameter '" + p.name + "'");
    locals_[p.name] = Symbol{Symbol::Kind::kVariable, t, 0, Space::kParam, p.offset};
    kernel_->parameters.push_back(p);
  }

  void tuning() {
    while (!failed_ && !is_mark('{')) {
      if (take(".maxntid") || take(".reqntid")) {
        std::uint64_t threads = number();
        while (take(',')) threads *= std::min<std::uint64_t>(number(), 1024);
        kernel_->max_threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, 1024));
      } else if (take(".minnctapersm") || take(".maxnreg")) {
        number();
      } else if (take(".noreturn")) {
      } else {
        fail("Parsing error near '" + now().text + "': unexpected before a body");
      }
    }
  }

  void statement() {
    if (ends()) return fail("Parsing error: end of file inside of a body");
    if (take('{')) {
      // Names of an inner block end with it.
      if (++depth_ > 32) return fail("Blocks are nested too deeply");
      outer_.push_back(locals_);
      return;
    }
    if (take('}')) {
      --depth_;
      if (!outer_.empty()) {
        locals_ = std::move(outer_.back());
        outer_.pop_back();
      }
      return;
    }
    if (take(';')) return;
    if (take(".reg")) return registers();
    if (take(".shared")) return variable(Space::kShared, locals_);
    if (take(".local")) return variable(Space::kLocal, locals_);
    if (take(".pragma")) {
      next();
      return want(';');
    }
    if (take(".loc")) {
      int line = now().line;
      while (!failed_ && !ends() && now().line == line) next();
      return;
    }
    if (now().kind == Token::Kind::kWord && tokens_[at_ + 1].kind == Token::Kind::kMark &&
        tokens_[at_ + 1].text == ":") {
      std::string n = name();
      next();
      if (!labels_.emplace(n, static_cast<std::uint32_t>(kernel_->code.size())).second) {
        fail("Duplicate definition of label '" + n + "'");
      }
      return;
    }
    instruction();
  }

  void registers() {
    std::uint64_t align = 1;
    Type t = variable_type(&align);
    do {
      int line = now().line;
      std::string n = name();
      std::uint64_t count = 0;
      if (take('<')) {
        count = number();
        want('>');
        if (count == 0 || count > kMaxRegisters) return fail("Register count out of range", line);
      }
      for (std::uint64_t i = 0; !failed_ && i < std::max<std::uint64_t>(count, 1); ++i) {
        std::string full = count ? n + std::to_string(i) : n;
        if (kernel_->registers >= kMaxRegisters) return fail("Too many registers", line);
        if (!locals_.emplace(full, Symbol{Symbol::Kind::kRegister, t, kernel_->registers, Space::kGeneric, 0})
                 .second) {
          return fail("Duplicate definition of register '" + full + "'", line);
        }
        ++kernel_->registers;
      }
    } while (!failed_ && take(','));
    want(';');
  }

  const Symbol* symbol(const std::string& n) const {
    if (auto it = locals_.find(n); it != locals_.end()) return &it->second;
    if (auto it = globals_.find(n); it != globals_.end()) return &it->second;
    return nullptr;
  }

  void instruction() {
    Instruction i;
    i.line = now().line;
    if (take('@')) {
      i.predicate_negated = take('!');
      std::string n = name();
      const Symbol* s = symbol(n);
      if (!failed_ && (!s || s->kind != Symbol::Kind::kRegister || s->type != Type::kPred)) {
        return fail("Unknown predicate '" + n + "'");
      }
      if (s) i.predicate = s->index;
    }
    std::string opcode = name();
    if (failed_) return;
    auto parts = split_dots(opcode);
    const OpForm* form = find_form(parts[0]);
    if (!form) return fail("Not a name of any known instruction: '" + parts[0] + "'", i.line);
    i.op = form->op;
    int types = 0;
    for (std::size_t k = 1; k < parts.size() && !failed_; ++k) {
      if (std::string why = apply_modifier(*form, parts[k], i, &types); !why.empty()) fail(why, i.line);
    }
    if (failed_) return;
    if (i.op == Op::kBar && (i.flags & kWarp)) i.op = Op::kWarpBar;
    if (types != form->types) return fail("Wrong number of types on instruction '" + opcode + "'", i.line);
    if (std::string why = wrong_modifiers(opcode, i); !why.empty()) return fail(why, i.line);
    if (!is_mark(';')) operands(i);
    if (failed_) return;
    want(';');
    if (i.count < form->low || i.count > form->high) {
      // A vector counts once, but fills several places.
      if (i.vector == 1) return fail("Arguments mismatch for instruction '" + parts[0] + "'", i.line);
    }
    if (std::string why = wrong_operands(opcode, i); !why.empty()) return fail(why, i.line);
    if (kernel_->code.size() >= kMaxCode) return fail("Function is too large", i.line);
    kernel_->code.push_back(i);
  }

  // Parts of a vector between braces.
  void braces(Instruction& i) {
    bool move = i.op == Op::kMov, first = i.count == 0;
    int n = 0;
    in_braces_ = move;
    do {
      if (i.count >= 8) return fail("Arguments mismatch", i.line);
      i.operands[i.count++] = operand(i);
      ++n;
    } while (!failed_ && take(','));
    in_braces_ = false;
    want('}');
    if (!move) {
      if (n != i.vector) fail("Vector size mismatch", i.line);
      return;
    }
    bool fits = (n == 2 || n == 4) && size_of(i.type) % static_cast<std::uint32_t>(n) == 0 && i.vector == 1;
    if (!fits) return fail("Vector size mismatch", i.line);
    i.vector = static_cast<std::uint8_t>(n);
    i.flags |= first ? kUnpack : kPack;
  }

  // The second destination behind '|': a predicate.
  void paired(Instruction& i) {
    if (i.op != Op::kSetp && i.op != Op::kShfl)
      return fail("Paired destinations are not possible for this instruction", i.line);
    std::string n = name();
    const Symbol* s = symbol(n);
    if (!failed_ && (!s || s->kind != Symbol::Kind::kRegister || s->type != Type::kPred))
      return fail("Unknown predicate '" + n + "'", i.line);
    if (s) i.paired = s->index;
  }

  void operands(Instruction& i) {
    do {
      if (i.count >= 8) return fail("Arguments mismatch", i.line);
      if (take('{')) {
        braces(i);
        continue;
      }
      i.operands[i.count++] = operand(i);
      if (i.count == 1 && take('|')) paired(i);
    } while (!failed_ && take(','));
  }

  Operand address(const Instruction& i) {
    Operand o;
    o.kind = Operand::Kind::kAddress;
    o.index = kNoRegister;
    if (now().kind == Token::Kind::kInteger) {
      o.integer = number();
      o.space = Space::kGeneric;
      want(']');
      return o;
    }
    std::string n = name();
    const Symbol* s = symbol(n);
    if (!failed_ && !s) return fail("Unknown symbol '" + n + "'", i.line), o;
    if (failed_) return o;
    if (s->kind == Symbol::Kind::kRegister) {
      if (size_of(s->type) < 4 || kind_of(s->type) == 'f')
        return fail("Address in a register of a wrong type", i.line), o;
      o.index = s->index;
    } else {
      o.space = s->space;
      o.integer = s->address;
    }
    bool minus = is_mark('-');
    if (take('+') || take('-')) {
      minus = take('-') || minus;
      std::uint64_t v = number();
      if (o.index == kNoRegister && (minus || v >> 31))
        return fail("Offset leaves the variable '" + n + "'", i.line), o;
      o.integer += minus ? ~v + 1 : v;
    }
    want(']');
    return o;
  }

  Operand operand(const Instruction& i) {
    Operand o;
    if (take('[')) return address(i);
    o.negated = take('!');
    bool minus = take('-');
    if (now().kind == Token::Kind::kInteger || now().kind == Token::Kind::kReal) {
      o.kind = Operand::Kind::kImmediate;
      o.floating = now().kind == Token::Kind::kReal;
      o.integer = minus ? ~now().integer + 1 : now().integer;
      o.real = o.floating ? now().real : static_cast<double>(now().integer);
      if (minus) o.real = -o.real;
      next();
      return o;
    }
    if (minus) return fail("Parsing error near '" + now().text + "': expected a number"), o;
    std::string n = name();
    if (failed_) return o;
    if (const Symbol* s = symbol(n)) {
      if (s->kind == Symbol::Kind::kRegister) {
        o.kind = Operand::Kind::kRegister;
        o.index = s->index;
        check_register(i, n, *s, o.negated);
        return o;
      }
      o.kind = Operand::Kind::kAddress;  // its address as a value
      o.index = kNoRegister;
      o.integer = s->address;
      o.space = s->space;
      return o;
    }
    if (auto special = special_named(n)) {
      o.kind = Operand::Kind::kSpecial;
      o.special = *special;
      return o;
    }
    if (i.op == Op::kBra) {
      o.kind = Operand::Kind::kLabel;
      uses_.push_back({kernel_->code.size(), n, i.line});
      return o;
    }
    fail("Unknown symbol '" + n + "'", i.line);
    return o;
  }

  // Whether the next operand of the instruction must be a predicate.
  static bool predicate_wanted(const Instruction& i) {
    switch (i.op) {
      case Op::kSetp:
        return i.count == 0 || i.count == 3;
      case Op::kSelp:
        return i.count == 3;
      case Op::kTestp:
      case Op::kIsspacep:
        return i.count == 0;
      case Op::kVote:
        return i.count == 1 || (i.count == 0 && i.type == Type::kPred);
      default:
        return i.type == Type::kPred;
    }
  }

  // Registers must be as wide as the instruction's type says, where the type says it of all operands.
  void check_register(const Instruction& i, const std::string& n, const Symbol& s, bool negated) {
    if (negated && s.type != Type::kPred) return fail("'!' needs a predicate: '" + n + "'", i.line);
    bool wants_predicate = predicate_wanted(i);
    if (wants_predicate != (s.type == Type::kPred) && i.op != Op::kBar) {
      return fail("Arguments mismatch for instruction: '" + n + "' is " + (wants_predicate ? "not " : "") +
                      "a predicate",
                  i.line);
    }
    if (wants_predicate) return;
    std::uint32_t size = size_of(i.type);
    switch (i.op) {
      case Op::kAdd:
      case Op::kSub:
      case Op::kFma:
      case Op::kDiv:
      case Op::kRem:
      case Op::kMin:
      case Op::kMax:
      case Op::kAnd:
      case Op::kOr:
      case Op::kXor:
      case Op::kNot:
      case Op::kNeg:
      case Op::kAbs:
      case Op::kAddc:
      case Op::kSubc:
      case Op::kSqrt:
      case Op::kRcp:
      case Op::kSetp:
      case Op::kSelp:
        if (size_of(s.type) != size) mismatch(n, i);
        break;
      case Op::kMov:
        if (!in_braces_ && size_of(s.type) != size) mismatch(n, i);
        break;
      case Op::kMul:
      case Op::kMad: {
        bool wide = (i.flags & kWide) && (i.count == 0 || i.count == 3);
        if (size_of(s.type) != (wide ? 2 * size : size)) mismatch(n, i);
        break;
      }
      case Op::kLd:
      case Op::kSt:
        if (size_of(s.type) < size) mismatch(n, i);
        break;
      default:
        break;
    }
  }

  void mismatch(const std::string& n, const Instruction& i) {
    fail("Arguments mismatch for instruction: '" + n + "' has a wrong type", i.line);
  }

  void resolve() {
    for (const Use& use : uses_) {
      auto it = labels_.find(use.label);
      if (it == labels_.end()) return fail("Unknown label '" + use.label + "'", use.line);
      if (use.instruction < kernel_->code.size())
        kernel_->code[use.instruction].operands[0].index = it->second;
    }
  }

  struct Use {
    std::size_t instruction;
    std::string label;
    int line;
  };

  std::vector<Token> tokens_;
  Module* out_;
  std::size_t at_ = 0;
  bool failed_ = false;
  std::string log_;
  std::map<std::string, Symbol> globals_, locals_;
  std::vector<std::map<std::string, Symbol>> outer_;
  std::map<std::string, std::uint32_t> labels_;
  std::vector<Use> uses_;
  Kernel* kernel_ = nullptr;
  std::uint64_t shared_ = 0;
  int depth_ = 0;
  bool in_braces_ = false;  // of a mov
};

}  // namespace

bool parse(std::string_view text, Module* out, std::string* log) {
  std::vector<Token> tokens;
  std::string error;
  int line = 1;
  if (!lex(text, &tokens, &error, &line)) {
    *log = "ptxas application ptx input, line " + std::to_string(line) +
           "; fatal   : Parsing error: " + error + "\nptxas fatal   : Ptx assembly aborted due to errors\n";
    return false;
  }
  return Parser(std::move(tokens), out).run(log);
}

void bind_variables(Module& module) {
  for (Kernel& kernel : module.kernels) {
    for (Instruction& i : kernel.code) {
      for (Operand& o : i.operands) {
        if (o.kind != Operand::Kind::kAddress || o.index != kNoRegister) continue;
        if (o.space != Space::kGlobal && o.space != Space::kConst) continue;
        std::uint64_t which = o.integer >> 32;
        if (which >= module.variables.size()) continue;
        o.integer = module.variables[which].address + static_cast<std::uint32_t>(o.integer);
      }
    }
  }
}

}  // namespace gpuop::sim::ptx
