// The instruction set in use, for the layers above: they do not see kernels/.
#pragma once

#include "kernels/isa.h"
