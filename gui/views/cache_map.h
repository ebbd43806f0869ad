#pragma once
#include "gui/prepare/kv_map.h"
#include "gui/views/view.h"

/// The blocks of the KV cache, and who wrote each slot.
namespace nanscope::gui {

/// As high as the map would like to be in this width.
float cache_map_height(const ViewContext& context, const ViewActions& actions, const KvMap& map, float width);
void draw_cache_map(const ViewContext& context, const ViewActions& actions, const KvMap& map, Area area);

}  // namespace nanscope::gui
