// The table of one instruction set, out of the entries that op.cpp.in makes.
#include "kernels/op_table.h"

namespace nanscope::kernels::NANSCOPE_ISA {

#define NANSCOPE_OP(Name, stem, gradient) extern const OpEntry entry_of_##Name;
#include "kernels/ops.def"
#undef NANSCOPE_OP

const OpTable op_table = {{
#define NANSCOPE_OP(Name, stem, gradient) &entry_of_##Name,
#include "kernels/ops.def"
#undef NANSCOPE_OP
}};

}  // namespace nanscope::kernels::NANSCOPE_ISA
